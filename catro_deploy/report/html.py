"""report.html: one file that needs nothing else, in light and dark, on paper and on a phone."""

from collections.abc import Sequence
from dataclasses import asdict
from html import escape

from catro_deploy.records import Finetune, Quantize, ReconstructionPlan, Search
from catro_deploy.records.figures import LatencyFigures
from catro_deploy.records.report import Report
from catro_deploy.report import charts, latency_charts, latency_tables
from catro_deploy.report.agreement import agreement_chart, agreement_table
from catro_deploy.report.cards import badge, cards
from catro_deploy.report.comparison import before_table, comparison_words, settings_table
from catro_deploy.report.engines import engine_table, engine_words, mode_table, mode_words
from catro_deploy.report.finetuning import finetuning_words, probe_words
from catro_deploy.report.front import front_chart, front_table, front_words
from catro_deploy.report.grounds import conditions, heading, how_measured
from catro_deploy.report.page import folded, html_table, page
from catro_deploy.report.precision import (
    precision_table,
    precision_words,
    sensitivity_chart,
    sensitivity_table,
    served_file,
)
from catro_deploy.report.reconstruction import (
    layers_table,
    left_table,
    losses_table,
    reconstruction_chart,
    solved_words,
)
from catro_deploy.report.recovery import recovery_chart
from catro_deploy.report.selection_charts import kept_chart, path_chart
from catro_deploy.report.shipping import shipping_words
from catro_deploy.report.tables import (
    FEEDING,
    LOAD_CODE,
    class_table,
    onnx_code,
    records_table,
    reproduce_code,
    spent,
    summary_table,
    title,
    width_table,
)
from catro_deploy.report.verdict import invalid_original, validity
from catro_deploy.report.wording import typeset

__all__ = ["to_html"]

CLASSES_SHOWN = 12


def to_html(report: Report) -> str:
    """Write what ``build_report`` returned as one HTML page."""
    body = [
        _top(report),
        cards(report),
        _warnings(report),
        _measuring(report),
        _before(report),
        _sections(report),
        _records(report),
        _shipping(report),
        _use(report),
    ]
    return page(title(report), "".join(body))


def _top(report: Report) -> str:
    chosen, known = len(report.classes), report.model_classes
    classes = f"all {known} classes" if chosen == known else f"{chosen} of {known} classes: {_names(report.classes)}"
    return (
        f'<header><p class="eyebrow">catro-deploy report · {escape(report.name)}</p>\n'
        f"<h1>{escape(title(report))}</h1>\n"
        f'<p class="verdict">{escape(typeset(report.verdict))}.</p>\n'
        f'<p class="soft">For {classes}. {escape(spent(report))}</p></header>\n'
    )


def _names(classes: Sequence[str]) -> str:
    shown = ", ".join(map(escape, classes[:CLASSES_SHOWN]))
    return f"{shown} and {len(classes) - CLASSES_SHOWN} more" if len(classes) > CLASSES_SHOWN else shown


def _warnings(report: Report) -> str:
    invalid = invalid_original(report)
    if not report.warnings and not invalid:
        return ""
    passed = not report.verification or report.verification.passed
    items = "".join(f"<li>{escape(warning)}</li>" for warning in report.warnings)
    heading = "Read this first" if passed else "Verification failed"
    words = f"<strong>{heading}</strong><p>{escape(validity(report))}</p>"
    return f'<div class="notice{"" if passed and not invalid else " failed"}">{words}<ul>{items}</ul></div>\n'


def _measuring(report: Report) -> str:
    facts = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in conditions(report))
    return (
        f'<section><h2>{heading(report)}</h2><dl class="facts">{facts}</dl>\n'
        f'<p class="soft">{escape(how_measured(report))}</p>\n{html_table(summary_table(report))}</section>\n'
    )


def _before(report: Report) -> str:
    """Beside the run before it of the same network, if there is one."""
    if not (before := report.before):
        return ""
    words, table = comparison_words(before), before_table(before)
    return (
        f'<section><h2>Compared with the run before</h2><p class="soft">{escape(words)}</p>{html_table(table)}'
        f"{folded('Settings that differ', settings_table(before))}</section>\n"
    )


def _sections(report: Report) -> str:
    """What came out, then how it came about: each section a heading, a picture, and its figures as a table."""
    sections: list[tuple[str, str]] = []
    if report.latency_histogram and report.latencies:
        sections.append(("Latency", charts.latency_chart(report.latency_histogram, report.latencies)))
    if modes := mode_table(report):
        words = f'<p class="soft">{escape(mode_words(report))}</p>'
        sections.append(("Latency, mode by mode", words + html_table(modes)))
    if engines := engine_table(report):
        words = f'<p class="soft">{escape(engine_words(report))}</p>'
        sections.append(("Engines", words + html_table(engines)))
    if report.quantize:
        sections += _precision(report.quantize)
    if report.latency_plan:
        sections.append((f"Budget{badge(report.latency_plan)}", _budget(report.latency_plan, report)))
    if report.search:
        sections.append(("Front", _front(report.search)))
    sections += _answers(report)
    depth = latency_tables.depth_words(report.dropped)
    gone = f'<p class="soft">{escape(depth)}</p>' if depth else ""
    table = folded("All groups, with the grounds", width_table(report))
    sections.append(("Widths", charts.widths_chart(report.groups) + gone + table))
    if report.search_path:
        sections.append(("Search path", path_chart(report.search_path, report.groups)))
    sections.append(("Kept channels", kept_chart(report.groups)))
    if report.latency_plan:
        sections += _grounds(report.latency_plan)
    if report.finetune:
        sections.append(("Fine-tuning", _finetuning(report.finetune)))
    return "".join(f"<section><h2>{name}</h2>{content}</section>\n" for name, content in sections)


def _precision(quantize: Quantize) -> list[tuple[str, str]]:
    """Which precisions were tried, and how sensitive each layer is."""
    words = f'<p class="soft">{escape(precision_words(quantize))}</p>'
    sections = [("Precision", words + html_table(precision_table(quantize)))]
    if layers := sensitivity_table(quantize):
        sections.append(("Layers in integers", sensitivity_chart(quantize) + folded("All layers", layers)))
    return sections


def _answers(report: Report) -> list[tuple[str, str]]:
    """What the answers are worth: step by step, layer by layer, and class by class."""
    sections: list[tuple[str, str]] = []
    if report.recovery:
        sections.append(("What each step gave back", recovery_chart(report.recovery)))
    if report.reconstruction:
        sections.append(("Reconstruction", _reconstruction(report.reconstruction)))
    if report.per_class:
        table = folded("All figures by class", class_table(report))
        sections.append(("Accuracy by class", charts.accuracy_chart(report.per_class) + table))
    if not report.labelled and report.agreement and report.agreement.per_class:
        table = folded("All figures by class", agreement_table(report.agreement))
        sections.append(("Agreement with the original by class", agreement_chart(report.agreement) + table))
    return sections


def _budget(latency: LatencyFigures, report: Report) -> str:
    table, used = html_table(latency_tables.budget_table(report)), report.budget_used
    if not latency.rounds:
        return table
    return table + latency_charts.rounds_chart(latency, used) + html_table(latency_tables.rounds_table(latency, used))


def _reconstruction(record: ReconstructionPlan) -> str:
    content = f'<p class="soft">{escape(solved_words(record))}</p>{html_table(losses_table(record))}'
    if (layers := layers_table(record)).rows:
        content += reconstruction_chart(record) + folded("All layers, in their order", layers)
    return content + (folded("Layers left as they are", left_table(record), True) if record.left else "")


def _finetuning(finetune: Finetune) -> str:
    if not finetune.epochs:
        return f'<p class="soft">{escape(finetuning_words(finetune))}</p>'
    probe = probe_words(finetune)
    return charts.finetune_chart(finetune) + (f'<p class="soft">{escape(probe)}</p>' if probe else "")


def _front(search: Search) -> str:
    return f'<p class="soft">{escape(front_words(search))}</p>{front_chart(search)}{html_table(front_table(search))}'


def _grounds(latency: LatencyFigures) -> list[tuple[str, str]]:
    """How latency decided the widths."""
    sections = []
    if latency.staircases:
        table = folded("All groups, with their candidates", latency_tables.stairs_table(latency))
        sections.append(("Staircases", latency_charts.stairs_charts(latency) + table))
    if latency.layers:
        table = folded("All layers", latency_tables.layer_table(latency))
        sections.append(("Time by layer", latency_charts.layers_chart(latency) + table))
    errors = latency_tables.error_table(latency)
    source = f'<p class="soft">{escape(latency_tables.source_words(latency))}</p>'
    sections.append(("Cost model", source + (html_table(errors) if errors else "")))
    return [(name + badge(latency), content) for name, content in sections]


def _records(report: Report) -> str:
    records = [
        ("Environment and protocol", report.conditions),
        ("Versions where this report was written", report.versions),
        ("Settings of the pruning", report.settings),
    ]
    if report.verification:
        kept = ("tolerance", "max_drop", "original", "pruned", "onnxruntime")
        verification = {key: value for key, value in asdict(report.verification).items() if key in kept and value}
        records.insert(1, ("Agreement of PyTorch and the runtime", verification))
    tables = "".join(
        folded(name, records_table(record, ("What", "Recorded")), i == 0) for i, (name, record) in enumerate(records)
    )
    return f"<section><h2>Records</h2>{tables}</section>\n"


def _use(report: Report) -> str:
    parts: Sequence[tuple[str, str, str]] = (
        ("Load it in PyTorch", "No pickle: the factory's name, plan.json and safetensors.", LOAD_CODE),
        (
            "Feed the ONNX file",
            FEEDING,
            onnx_code(report, served_file(report)),
        ),
        ("Reproduce it", "RUN_FOLDER is the folder of this report.", reproduce_code(report)),
    )
    return "".join(
        f'<section><h2>{name}</h2><p class="soft">{text}</p>'
        f'<pre tabindex="0"><code>{escape(code)}</code></pre></section>\n'
        for name, text, code in parts
    )


def _shipping(report: Report) -> str:
    if not report.ship:
        return ""
    words = shipping_words(report.ship)
    facts = "".join(f"<div><dt>{name.capitalize()}</dt><dd>{escape(text)}</dd></div>" for name, text in words)
    return f'<section><h2>What to ship</h2><dl class="facts">{facts}</dl></section>\n'
