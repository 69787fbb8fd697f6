"""The served precision: the candidates, why the others lost, and how sensitive the layers are."""

from html import escape

from catro_deploy.records import Qat, Quantize, Sensitivity
from catro_deploy.report import svg
from catro_deploy.report.agreement import METRICS, divergence_words, validation_heading
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import duration, minus, percent, points, ratios
from catro_deploy.units import counted

__all__ = [
    "precision_table",
    "precision_words",
    "sensitivity_chart",
    "sensitivity_table",
]

SHOWN = 24
"""The number of layers that are drawn; less sensitive ones are only in the table."""


def precision_table(quantize: Quantize) -> Table:
    """The candidates, fastest first."""
    rows = []
    for name, one in quantize.by_latency:
        faster, low, high = ratios(one.speedup.median, *one.speedup.ci95)
        rows.append(
            (name, percent(one.score), duration(one.us), f"{faster}x ({low} to {high})", quantize.outcome(name))
        )
    rows += [(name, "", "", "", reason) for name, reason in quantize.lost.items() if name not in quantize.candidates]
    head = ("Precision", validation_heading(quantize), "p50", "Original / pruned (95% CI)", "Outcome")
    return Table(head, tuple(rows), frozenset({1, 2, 3}))


def precision_words(quantize: Quantize) -> str:
    """The request, the limits, and how int8 was made."""
    text = (
        f"Requested: {quantize.asked}. On {counted(quantize.validation_images, 'validation image')} at least "
        f"{percent(quantize.least_score)} {METRICS[quantize.metric]} had to be kept; latencies were measured "
        f"interleaved with the original in {quantize.own}.{divergence_words(quantize)}"
    )
    made = quantize.integers
    if made is None:
        return text
    text += f" int8: calibrated on {counted(made.calibration_images, 'training image')}"
    if qat := made.qat:
        text += _qat_words(qat)
    if made.kept is None:
        return text + ", and given up."
    kept = ", ".join(made.kept) or "none"
    text += f"; layers that stay in floating point: {kept}."
    if not made.operators:  # the runtime is not installed here
        return text
    runtime = "OpenVINO" if made.form == "openvino" else "ONNX Runtime"
    computing = counted(made.integer_nodes, "node computes", "nodes compute")
    return f"{text} After {runtime}'s optimisation for a CPU, {computing} in integers."


def _qat_words(qat: Qat) -> str:
    """What quantisation-aware fine-tuning changed."""
    before = "all" if qat.kept_before is None else f"{len(qat.kept_before)}"
    after = "all" if qat.kept is None else f"{len(qat.kept)}"
    return (
        f", then fine-tuned for {counted(len(qat.history.epochs), 'epoch')}: layers that had to stay in "
        f"floating point: {before} before, {after} after" + ("" if qat.used else ", so that it was not used")
    )


def sensitivity_table(quantize: Quantize) -> Table | None:
    """The cost of quantising each layer on its own."""
    found = _sensitivity(quantize)
    if not found:
        return None
    rows = tuple((one.layer, points(-one.drop_points), f"{one.error:.2e}") for one in found)
    head = ("Layer, quantised alone", f"Points of {METRICS[quantize.metric]}", "Squared error of logits")
    return Table(head, rows, frozenset({1, 2}))


def sensitivity_chart(quantize: Quantize) -> str:
    """A bar for each layer: the error of the logits when only this layer is quantised."""
    found = _sensitivity(quantize)[:SHOWN]
    kept = _kept(quantize)
    largest = max(one.error for one in found) * 1e3
    axis = svg.zoomed(0, largest or 1, 4, floor=0)
    parts = svg.grid(axis)
    for number, one in enumerate(found):
        hint = f"{one.layer}: {points(-one.drop_points)} points, squared error {one.error:.2e}"
        style = "bar original" if one.layer in kept else "bar pruned"
        drawn = [
            svg.name(one.layer, "end"),
            svg.rect(0, -4, axis.place(one.error * 1e3), 8, style, hint=hint),
            svg.value(minus(points(-one.drop_points)) if one.drop_points else "0", faint=not one.drop_points),
        ]
        parts.append(svg.row(number, drawn))
    more = len(_sensitivity(quantize)) - len(found)
    caption = (
        "Mean squared error of the logits, in thousandths of their mean square, when only one layer is quantised; "
        f"at the right, the change of {METRICS[quantize.metric]}, in points, on some validation images."
        + (f" In the table only: {counted(more, 'layer')}, less sensitive." if more else "")
    )
    entries = [("pruned", "quantised"), *([("original", "stays in floating point")] if kept else [])]
    described = "; ".join(f"{escape(one.layer)}: {one.error:.2e}" for one in found[:5])
    return svg.figure("Sensitivity", described, parts, f"--rows:{len(found)}", "rows", caption, svg.legend(*entries))


def _sensitivity(quantize: Quantize) -> tuple[Sensitivity, ...]:
    return quantize.integers.sensitivity if quantize.integers else ()


def _kept(quantize: Quantize) -> set[str]:
    """The layers that stay in floating point."""
    return set(quantize.integers.kept or ()) if quantize.integers else set()
