"""In which number format the network is served: what was tried, why the others lost, and what each layer minds."""

from collections.abc import Mapping
from html import escape
from typing import Any

from catro_deploy.report import svg
from catro_deploy.report.agreement import MEASURES, divergence_words, measure_of, validation_heading
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import count, duration, minus, percent, points, ratios

__all__ = [
    "precision_table",
    "precision_words",
    "sensitivity_chart",
    "sensitivity_table",
    "served_file",
]

SHOWN = 24
"""Layers that are drawn; those that mind less are in the table."""
INTEGER = ("QLinear", "QGemm", "ConvInteger", "MatMulInteger")


def served_file(report: Mapping[str, Any]) -> str:
    """The name of the ONNX file that is served."""
    if report["ship"]:
        return str(report["ship"]["file"])
    quantize = report["quantize"]
    shipped = quantize["shipped"] if quantize else "fp32"
    return "pruned.onnx" if shipped == "fp32" else f"pruned.{shipped}.onnx"


def precision_table(report: Mapping[str, Any]) -> Table | None:
    """The candidates, the fastest first."""
    quantize = report["quantize"]
    if not quantize:
        return None
    rows = []
    for name, one in sorted(quantize["candidates"].items(), key=lambda item: item[1]["ratio"]):
        faster, low, high = ratios(1 / one["ratio"], 1 / one["ratio_ci95"][1], 1 / one["ratio_ci95"][0])
        outcome = "served" if name == quantize["shipped"] else one["lost"]
        rows.append((name, percent(one["score"]), duration(one["us"]), f"{faster}x ({low} to {high})", outcome))
    rows += [
        (name, "", "", "", reason) for name, reason in quantize["lost"].items() if name not in quantize["candidates"]
    ]
    head = ("Precision", validation_heading(quantize), "p50", "Original / pruned (95% CI)", "Outcome")
    return Table(head, tuple(rows), frozenset({1, 2, 3}))


def precision_words(report: Mapping[str, Any]) -> str:
    """What was asked and allowed, and what the integers are."""
    quantize = report["quantize"]
    text = (
        f"Asked for: {quantize['asked']}. On {count(quantize['validation_images'])} validation images at least "
        f"{percent(quantize['least_score'])} {MEASURES[measure_of(quantize)]} had to be kept; latencies were measured "
        f"alternately with the original in {quantize['own']}.{divergence_words(quantize)}"
    )
    made = quantize["made"].get("int8")
    if made is None:
        return text
    text += f" Integers: calibrated on {count(made['calibration_images'])} training images"
    if qat := made.get("qat"):
        text += _qat_words(qat)
    if made["kept"] is None:
        return text + ", and given up."
    kept = ", ".join(made["kept"]) or "none"
    integer = sum(number for name, number in made["operators"].items() if name.startswith(INTEGER))
    return (
        f"{text}; layers that keep their floating point: {kept}. Of the nodes that ONNX Runtime makes of it on a CPU, "
        f"{integer} compute in integers."
    )


def _qat_words(qat: Mapping[str, Any]) -> str:
    """What fine-tuning for integers has changed."""
    before = "all" if qat["kept_before"] is None else f"{len(qat['kept_before'])}"
    after = "all" if qat["kept"] is None else f"{len(qat['kept'])}"
    epochs = len(qat["history"]["epochs"])
    return (
        f", then fine-tuned for {count(epochs)} epoch{'s' if epochs > 1 else ''}: layers that had to keep their "
        f"floating point before, {before}; after, {after}" + ("" if qat["used"] else ", so that it was not used")
    )


def sensitivity_table(report: Mapping[str, Any]) -> Table | None:
    """What every layer costs when it alone is quantised."""
    found = _sensitivity(report)
    if not found:
        return None
    rows = tuple((one["layer"], points(-one["drop_points"]), f"{one['error']:.2e}") for one in found)
    head = ("Layer, alone in integers", f"Points of {_measure(report)}", "Squared error of logits")
    return Table(head, rows, frozenset({1, 2}))


def sensitivity_chart(report: Mapping[str, Any]) -> str:
    """A bar for each layer: the error of the logits when it alone is quantised."""
    found = _sensitivity(report)[:SHOWN]
    kept = set(report["quantize"]["made"]["int8"]["kept"] or ())
    largest = max(one["error"] for one in found) * 1e3
    axis = svg.zoomed(0, largest or 1, 4, floor=0)
    parts = svg.grid(axis)
    for number, one in enumerate(found):
        hint = f"{one['layer']}: {points(-one['drop_points'])} points, squared error {one['error']:.2e}"
        style = "bar original" if one["layer"] in kept else "bar pruned"
        drawn = [
            svg.name(one["layer"], "end"),
            svg.rect(0, -4, axis.place(one["error"] * 1e3), 8, style, hint=hint),
            svg.value(minus(points(-one["drop_points"])) if one["drop_points"] else "0", faint=not one["drop_points"]),
        ]
        parts.append(svg.row(number, drawn))
    more = len(_sensitivity(report)) - len(found)
    caption = (
        "Mean squared error of the logits, in thousandths of their mean square, when one layer alone is in integers; "
        f"at the right, what that does to the {_measure(report)}, in points, on some validation images."
        + (f" The {more} layers that mind least are in the table." if more else "")
    )
    entries = [("pruned", "in integers"), *([("original", "keeps its floating point")] if kept else [])]
    described = "; ".join(f"{escape(one['layer'])}: {one['error']:.2e}" for one in found[:5])
    return svg.figure("Sensitivity", described, parts, f"--rows:{len(found)}", "rows", caption, svg.legend(*entries))


def _measure(report: Mapping[str, Any]) -> str:
    return MEASURES[measure_of(report["quantize"])]


def _sensitivity(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    made = (report["quantize"] or {"made": {}})["made"].get("int8") or {}
    found: list[dict[str, Any]] = made.get("sensitivity", [])
    return found
