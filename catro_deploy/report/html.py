"""report.html: one file that needs nothing else, in light and dark, on paper and on a phone."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from catro_deploy.report import charts
from catro_deploy.report.tables import (
    FEEDING,
    LOAD_CODE,
    Table,
    class_table,
    conditions,
    how_measured,
    onnx_code,
    records_table,
    reproduce_code,
    summary_table,
    title,
    width_table,
)
from catro_deploy.report.wording import change, count, minus, ms, percent, points, ratios

__all__ = ["to_html"]

# The page may load nothing from anywhere, whatever a class name tries.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def to_html(report: Mapping[str, Any]) -> str:
    """Write what ``build_report`` returned as one HTML page."""
    style = resources.files("catro_deploy.report").joinpath("style.css").read_text(encoding="utf-8")
    name = escape(title(report))
    body = [
        _top(report),
        _figures(report),
        _warnings(report),
        _measuring(report),
        _pictures(report),
        _records(report),
        _use(report),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{name}</title>\n<style>\n{style}</style>\n'
        f"</head>\n<body>\n<main>\n{''.join(body)}</main>\n</body>\n</html>\n"
    )


def _top(report: Mapping[str, Any]) -> str:
    chosen, known = len(report["classes"]), report["model_classes"]
    classes = f"all {known} classes" if chosen == known else f"{chosen} of {known} classes"
    used = percent(report["macs_share"]["used"])
    return (
        f'<header><p class="eyebrow">catro-deploy report · {escape(report["name"])}</p>\n'
        f"<h1>{escape(title(report))}</h1>\n"
        f'<p class="verdict">{escape(_arrows(report["verdict"]))}.</p>\n'
        f'<p class="soft">For {classes}. Budget {escape(report["budget"])}, used {used} of the original\'s '
        "multiply-accumulates (MACs).</p></header>\n"
    )


def _figures(report: Mapping[str, Any]) -> str:
    cards = [_speed_card(report), _accuracy_card(report), _size_card(report)]
    shown = "".join(
        f'<div><dt>{name}</dt><dd class="big {tone}">{big}</dd><dd class="detail">{detail}</dd></div>'
        for name, big, tone, detail in cards
    )
    return f'<dl class="figures">{shown}</dl>\n'


def _speed_card(report: Mapping[str, Any]) -> tuple[str, str, str, str]:
    low, high = report["speedup"]["ci95"]
    middle, low_text, high_text = ratios(report["speedup"]["median"], low, high)
    tone, word = ("good", "faster") if low > 1 else ("bad", "SLOWER") if high < 1 else ("", "no sure difference")
    old, new = (ms(report[name]["latency_ms"]["p50"]) for name in ("original", "pruned"))
    detail = f"{word}, 95% CI {low_text} to {high_text}<br>{old} → {new} ms (median)"
    return "Speed", f"{middle}×", tone, detail


def _accuracy_card(report: Mapping[str, Any]) -> tuple[str, str, str, str]:
    gain = -report["accuracy_drop_points"]
    before, after = (percent(report[name]["accuracy"]) for name in ("original", "pruned"))
    detail = f"{before} → {after}<br>{count(report['verification']['test_images'])} test images"
    tone = "good" if gain > 0 else "" if report["verification"]["passed"] else "bad"
    return "Accuracy", f"{minus(points(gain))} <small>points</small>", tone, detail


def _size_card(report: Mapping[str, Any]) -> tuple[str, str, str, str]:
    before, after = report["original"], report["pruned"]
    params, macs = (minus(change(before[key], after[key])) for key in ("params", "macs"))
    detail = f"{count(before['params'])} → {count(after['params'])}<br>MACs {macs}"
    return "Size, in parameters", params, "", detail


def _warnings(report: Mapping[str, Any]) -> str:
    if not report["warnings"]:
        return ""
    passed = report["verification"]["passed"]
    items = "".join(f"<li>{escape(warning)}</li>" for warning in report["warnings"])
    heading = "Read this first" if passed else "Verification failed"
    return f'<div class="notice{"" if passed else " failed"}"><strong>{heading}</strong><ul>{items}</ul></div>\n'


def _measuring(report: Mapping[str, Any]) -> str:
    facts = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in conditions(report))
    return (
        f'<section><h2>How it was measured</h2><dl class="facts">{facts}</dl>\n'
        f'<p class="soft">{escape(how_measured(report))}</p>\n{_table(summary_table(report))}</section>\n'
    )


def _pictures(report: Mapping[str, Any]) -> str:
    sections = [
        ("Latency", charts.latency_chart(report)),
        (
            "Accuracy by class",
            charts.accuracy_chart(report["per_class"]) + _folded("All figures by class", class_table(report)),
        ),
        (
            "Widths",
            charts.widths_chart(report["groups"]) + _folded("All groups, with the grounds", width_table(report)),
        ),
    ]
    if report["finetune"]:
        sections.append(("Fine-tuning", charts.finetune_chart(report["finetune"])))
    return "".join(f"<section><h2>{name}</h2>{picture}</section>\n" for name, picture in sections)


def _records(report: Mapping[str, Any]) -> str:
    verification = {key: report["verification"][key] for key in ("tolerance", "max_drop", "original", "pruned")}
    records = [
        ("Environment and protocol", report["environment"] | {"protocol": report["protocol"]}),
        ("Agreement of PyTorch and the runtime", verification),
        ("Versions where this report was written", report["versions"]),
        ("Settings of the pruning", report["settings"]),
    ]
    tables = "".join(
        _folded(name, records_table(record, ("What", "Recorded")), i == 0) for i, (name, record) in enumerate(records)
    )
    return f"<section><h2>Records</h2>{tables}</section>\n"


def _use(report: Mapping[str, Any]) -> str:
    parts: Sequence[tuple[str, str, str]] = (
        ("Load it in PyTorch", "No pickle: the factory's name, plan.json and safetensors.", LOAD_CODE),
        (
            "Feed the ONNX file",
            FEEDING,
            onnx_code(report),
        ),
        ("Reproduce it", "RUN_FOLDER is the folder of this report.", reproduce_code(report)),
    )
    return "".join(
        f'<section><h2>{name}</h2><p class="soft">{text}</p>'
        f'<pre tabindex="0"><code>{escape(code)}</code></pre></section>\n'
        for name, text, code in parts
    )


def _folded(name: str, table: Table, unfolded: bool = False) -> str:
    return f"<details{' open' if unfolded else ''}><summary>{escape(name)}</summary>{_table(table)}</details>\n"


def _table(table: Table) -> str:
    def style(column: int) -> str:
        return ' class="number"' if column in table.numeric else ' class="text"' if column else ""

    head = "".join(f'<th scope="col"{style(i)}>{escape(cell)}</th>' for i, cell in enumerate(table.head))
    rows = "".join(
        "<tr>"
        + f'<th scope="row">{escape(row[0])}</th>'
        + "".join(
            f"<td{style(i)}>{escape(minus(cell) if i in table.numeric else cell)}</td>"
            for i, cell in enumerate(row)
            if i
        )
        + "</tr>"
        for row in table.rows
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{inside}</table></div>'


def _arrows(text: str) -> str:
    return text.replace(" -> ", " → ").replace("(-", "(−")
