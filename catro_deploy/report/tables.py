"""Tables that the Markdown and the HTML report share, as plain rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catro_deploy.records import Energy
from catro_deploy.records.figures import GroupFigures, InputFigures, Latency
from catro_deploy.records.report import Report
from catro_deploy.report.shipping import kilobytes
from catro_deploy.report.verdict import prediction_word
from catro_deploy.report.wording import (
    change,
    change_interval,
    count,
    flatten,
    label,
    large,
    ms,
    nats,
    percent,
    points,
    share_interval,
    value,
)
from catro_deploy.settings.sides import size_text

__all__ = [
    "Table",
    "class_table",
    "interval_row",
    "percentiles",
    "pruning_settings_table",
    "records_table",
    "resized_sizes",
    "spent",
    "summary_table",
    "title",
    "width_table",
]


@dataclass(frozen=True)
class Table:
    """Rows of text; the columns in ``numeric`` are right-aligned."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


def title(report: Report) -> str:
    """Network and targets: ``cifar_resnet20, pruned for x86-cpu``."""
    *others, last = [one.name for one in report.devices] or [report.target]
    targets = f"{', '.join(others)} and {last}" if others else last
    return f"{report.model}, pruned for {targets}"


def spent(report: Report) -> str:
    """The budget, and the used share of the original's multiply-accumulates."""
    used, unit = percent(report.macs_share.used), report.budget_used.unit
    of = {"flops": "", "x": " of the original's latency", "us": " of latency"}[unit]
    macs = "the original's multiply-accumulates (MACs)"
    information = "" if unit == "flops" else ", for information"
    return f"Budget: {report.budget}{of}. Used: {used} of {macs}{information}."


def summary_table(report: Report) -> Table:
    """Original, pruned and change; without a measurement, the next best figure with a label."""
    before, after = report.original, report.pruned
    rows = [*_precision_rows(report), *_accuracy_rows(report), *_latency_rows(report)]
    for name, old, new in (("MACs per image", before.macs, after.macs), ("Parameters", before.params, after.params)):
        rows.append((name, large(old), large(new), change(old, new)))
    if resized := resized_sizes(report.input):
        rows.append(("Computes at", *resized, "resizes its images itself"))
    if shipped := report.ship:
        sizes = shipped.original_bytes, shipped.bytes
        rows.append(("File", *map(kilobytes, sizes), change(*sizes)))
    return Table(("", "Original", "Pruned", "Change"), tuple(rows), frozenset({1, 2, 3}))


def resized_sizes(given: InputFigures) -> tuple[str, str] | None:
    """The image sizes at which the two networks compute; None if they are the same."""
    height, width = given.shape[1:]
    return (size_text((height, width)), size_text(given.resized_to)) if given.resized_to else None


def _precision_rows(report: Report) -> list[tuple[str, ...]]:
    if report.verification is None:
        return []
    return [("Precision", report.verification.precision.original, report.verification.precision.pruned, "")]


def _accuracy_rows(report: Report) -> list[tuple[str, ...]]:
    if report.verification is None:
        found, before = report.validation_accuracy, report.original_validation_accuracy
        if found is None:
            return [("Accuracy", "not measured", "not measured", "")]
        lost = ("not measured", percent(found), "")
        if before is not None:
            lost = (percent(before), percent(found), f"{points((found - before) * 100)} points")
        return [("Accuracy, validation images, by PyTorch", *lost)]
    rows: list[tuple[str, ...]] = []
    if report.labelled:
        accuracies = [percent(network.accuracy) for network in (report.original, report.pruned)]
        rows.append(("Accuracy", *accuracies, f"{points(-(report.accuracy_drop_points or 0))} points"))
        rows.append(interval_row(report))
    if agreement := report.agreement:
        rows.append(("Same prediction as the original", "", percent(agreement.share), ""))
        rows.append(("Mean KL from the original's outputs", "", nats(agreement.mean_kl_nats), ""))
    return rows


def interval_row(report: Report) -> tuple[str, str, str, str]:
    """The 95% intervals of both accuracies, and of the change if that was recorded."""
    both = [share_interval(network.accuracy_ci95) for network in (report.original, report.pruned)]
    changed = report.accuracy_change_ci95
    texts = [*both, change_interval(changed) if changed else ""]
    old, new, change_text = (text.removeprefix("95% CI ") for text in texts)
    return "Accuracy, 95% CI", old, new, change_text


def _latency_rows(report: Report) -> list[tuple[str, ...]]:
    latency = report.latency_plan
    if report.latencies:
        rows: list[tuple[str, ...]] = []
        for name, (old, new) in percentiles(*report.latencies).items():
            rows.append((f"Latency {name}", f"{ms(old)} ms", f"{ms(new)} ms", change(old, new)))
        scatter = [f"{network.latency_cv:.1%}" for network in (report.original, report.pruned)]
        return [*rows, ("Coefficient of variation", *scatter, ""), *_energy_rows(report.energy)]
    if latency is None:
        return []
    old, new = latency.original_us, latency.predicted_us
    return [(f"Latency, {prediction_word(latency)}", *(f"{ms(us / 1000)} ms" for us in (old, new)), change(old, new))]


def percentiles(before: Latency, after: Latency) -> dict[str, tuple[float, float]]:
    """Percentiles and mean of both networks, by name."""
    return {
        "p50": (before.p50, after.p50),
        "p90": (before.p90, after.p90),
        "p99": (before.p99, after.p99),
        "mean": (before.mean, after.mean),
    }


def _energy_rows(energy: Energy | None) -> list[tuple[str, ...]]:
    if not energy:
        return []
    old, new = energy.original.mj_per_inference, energy.pruned.mj_per_inference
    return [
        (f"Energy per inference ({energy.rails})", f"{old:.3g} mJ", f"{new:.3g} mJ", change(old, new) if old else "")
    ]


def class_table(report: Report) -> Table:
    """Accuracy by class."""
    rows = tuple(
        (
            entry.name,
            count(entry.images),
            percent(entry.original),
            percent(entry.pruned),
            points((entry.pruned - entry.original) * 100),
        )
        for entry in report.per_class
    )
    return Table(("Class", "Test images", "Original", "Pruned", "Points"), rows, frozenset({1, 2, 3, 4}))


def width_table(report: Report) -> Table:
    """Widths by group, with the reasons; columns of the scatter criterion only if it selected channels."""
    scored = any(group.trace_ratio is not None or group.rounds is not None for group in report.groups)
    rows = tuple(
        (
            group.name,
            count(group.width_before),
            count(group.width_after) if group.width_after else "removed",
            f"{group.width_after / group.width_before:.0%}",
            *(_scores(group) if scored else ()),
            ", ".join(group.layers) + (f" (fixed: {group.fixed})" if group.fixed else ""),
        )
        for group in report.groups
    )
    scores = ("Trace ratio", "Rounds") if scored else ()
    head = ("Group", "Before", "After", "Kept", *scores, "Producers")
    return Table(head, rows, frozenset(range(1, len(head) - 1)))


def _scores(group: GroupFigures) -> tuple[str, str]:
    ratio, rounds = group.trace_ratio, group.rounds
    return "" if ratio is None else f"{ratio:.4g}", "" if rounds is None else str(rounds)


def records_table(record: Mapping[str, Any], head: tuple[str, str], absent: str = "not recorded") -> Table:
    """Any record as rows of name and value; ``absent`` stands for a missing value."""
    return Table(head, tuple((label(key), value(key, content, absent)) for key, content in flatten(record)))


def pruning_settings_table(settings: Mapping[str, Any]) -> Table:
    """The [prune] settings of the run, including those that were not set."""
    return records_table(settings, ("Setting", "Value"), "not set")
