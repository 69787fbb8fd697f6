"""report.md: the report for a terminal, a merge request or a wiki."""

import re

from catro_deploy.records import Finetune, Quantize, ReconstructionPlan, Recovery, Search
from catro_deploy.records.figures import LatencyFigures
from catro_deploy.records.overview import Comparison
from catro_deploy.records.report import Report
from catro_deploy.report import latency_tables
from catro_deploy.report.agreement import agreement_table
from catro_deploy.report.comparison import before_table, comparison_words, settings_table
from catro_deploy.report.engines import engine_table, engine_words, mode_table, mode_words
from catro_deploy.report.finetuning import finetuning_words, probe_words
from catro_deploy.report.front import front_table, front_words
from catro_deploy.report.grounds import conditions, heading, how_measured
from catro_deploy.report.precision import precision_table, precision_words, sensitivity_table, served_file
from catro_deploy.report.reconstruction import layers_table, left_table, losses_table, solved_words
from catro_deploy.report.recovery import recovery_table, recovery_words
from catro_deploy.report.shipping import shipping_words
from catro_deploy.report.tables import (
    FEEDING,
    LOAD_CODE,
    Table,
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

__all__ = ["to_markdown"]


def to_markdown(report: Report) -> str:
    """Write what ``build_report`` returned as Markdown (CommonMark with tables)."""
    blocks = [f"# {plain(title(report))}", f"**{plain(report.verdict)}**"]
    if report.warnings or invalid_original(report):
        blocks += [
            "## Read this first",
            plain(validity(report)),
            "\n".join(f"- {plain(warning)}" for warning in report.warnings),
        ]
    blocks += [
        _table(summary_table(report)),
        plain(spent(report)) + _verified(report),
        f"## {heading(report)}",
        "\n".join(f"- {name}: {plain(text)}" for name, text in conditions(report)),
        plain(how_measured(report)),
        *_before(report.before),
        *_engines(report),
        *_precision(report.quantize),
        *_budget(report),
        *_front(report.search),
        *_recovery(report.recovery),
        *_reconstruction(report.reconstruction),
        *_by_class(report),
        "## Widths",
        _table(width_table(report)),
        *filter(None, [plain(latency_tables.depth_words(report.dropped))]),
        *_grounds(report.latency_plan),
        *_finetuning(report.finetune),
        "## Environment",
        _table(records_table(report.conditions, ("What", "Recorded"))),
        "Versions where this report was written:",
        _table(records_table(report.versions, ("Package", "Version"))),
        "## Settings of the pruning",
        _table(records_table(report.settings, ("Setting", "Value"))),
        *_use(report),
    ]
    return "\n\n".join(blocks) + "\n"


def _verified(report: Report) -> str:
    verification = report.verification
    return f" Verification {'passed' if verification.passed else 'FAILED'}." if verification else ""


def _before(before: Comparison | None) -> list[str]:
    """Beside the run before it of the same network, if there is one."""
    if not before:
        return []
    tables = (before_table(before), settings_table(before))
    return ["## Compared with the run before", plain(comparison_words(before)), *map(_table, tables)]


def _engines(report: Report) -> list[str]:
    """How latency was measured otherwise, and how engines were built, where that was so."""
    modes, engines = mode_table(report), engine_table(report)
    blocks = ["## Latency, mode by mode", plain(mode_words(report)), _table(modes)] if modes else []
    return [*blocks, "## Engines", plain(engine_words(report)), _table(engines)] if engines else blocks


def _precision(quantize: Quantize | None) -> list[str]:
    """Which precisions were tried, and how sensitive each layer is, where one was asked for."""
    if quantize is None:
        return []
    blocks = ["## Precision", plain(precision_words(quantize)), _table(precision_table(quantize))]
    layers = sensitivity_table(quantize)
    return [*blocks, "## Layers in integers", _table(layers)] if layers else blocks


def _budget(report: Report) -> list[str]:
    latency = report.latency_plan
    if latency is None:
        return []
    blocks = [f"## Budget{_mark(latency)}", _table(latency_tables.budget_table(report))]
    if latency.rounds:
        blocks += ["Rounds of the closed loop:", _table(latency_tables.rounds_table(latency, report.budget_used))]
    return blocks


def _recovery(recovery: Recovery | None) -> list[str]:
    """What each step from the cut on gave back, where that was measured."""
    if recovery is None:
        return []
    return ["## What each step gave back", _table(recovery_table(recovery)), plain(recovery_words(recovery))]


def _reconstruction(record: ReconstructionPlan | None) -> list[str]:
    """How well the layers were solved again, and which were not, if they were to be."""
    if record is None:
        return []
    tables = [table for table in (layers_table(record), left_table(record)) if table.rows]
    return ["## Reconstruction", plain(solved_words(record)), *map(_table, [losses_table(record), *tables])]


def _by_class(report: Report) -> list[str]:
    """Accuracy by class or, without labels, agreement with the original."""
    if report.per_class:
        return ["## Accuracy by class", _table(class_table(report))]
    if not report.labelled and report.agreement and report.agreement.per_class:
        return ["## Agreement with the original by class", _table(agreement_table(report.agreement))]
    return []


def _front(search: Search | None) -> list[str]:
    """The budgets that were tried, if one was searched."""
    return ["## Front", plain(front_words(search)), _table(front_table(search))] if search else []


def _grounds(latency: LatencyFigures | None) -> list[str]:
    """How latency decided the widths."""
    if latency is None:
        return []
    mark, blocks = _mark(latency), []
    if latency.staircases:
        blocks += [f"## Staircases{mark}", _table(latency_tables.stairs_table(latency))]
    if latency.layers:
        blocks += [f"## Time by layer{mark}", _table(latency_tables.layer_table(latency))]
    errors = latency_tables.error_table(latency)
    source = plain(latency_tables.source_words(latency))
    return [*blocks, f"## Cost model{mark}", source, *([_table(errors)] if errors else [])]


def _mark(latency: LatencyFigures) -> str:
    return " (estimate)" if latency.how == "estimate" else ""


def _finetuning(finetune: Finetune | None) -> list[str]:
    if finetune is None:
        return []
    return ["## Fine-tuning", plain(f"{finetuning_words(finetune)} {probe_words(finetune)}")]


def _use(report: Report) -> list[str]:
    shipped = shipping_words(report.ship) if report.ship else []
    what = ["## What to ship", "\n".join(f"- {name}: {plain(text)}" for name, text in shipped)] if shipped else []
    return [
        *what,
        "## How to load it",
        _code("python", LOAD_CODE),
        "## How to feed the ONNX file",
        FEEDING,
        _code("python", onnx_code(report, served_file(report))),
        "## How to reproduce it",
        _code("sh", reproduce_code(report)),
    ]


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<|&~#])", r"\\\1", " ".join(str(text).split()))


def _table(table: Table) -> str:
    rule = ["---:" if column in table.numeric else "---" for column in range(len(table.head))]
    rows = [
        [plain(cell) for cell in table.head],
        rule,
        *([plain(cell) for cell in row] for row in table.rows),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text}```"
