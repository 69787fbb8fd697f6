"""What each step from the cut on gave back, as a line, a table and bars."""

from collections.abc import Mapping
from typing import Any

from catro_deploy.report import svg
from catro_deploy.report.agreement import MEASURES, Measure
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import count, percent

__all__ = ["recovery_chart", "recovery_line", "recovery_table", "recovery_words"]

NAMES = {
    "original": "original",
    "cut": "after the cut",
    "reconstructed": "reconstructed",
    "finetuned": "fine-tuned",
}


def recovery_line(report: Mapping[str, Any]) -> str:
    """All steps in one line, from verify.json or the report; empty if they were not measured.

    ``accuracy on 800 test images: original 92.60%, after the cut 11.60%, reconstructed 85.40%, fine-tuned 91.10%``
    """
    recovery = report.get("recovery")
    if not recovery:
        return ""
    steps = ", ".join(f"{name} {percent(share)}" for name, share in _steps(recovery))
    end = "" if recovery["finetuned"] is not None else ", not fine-tuned"
    return f"{_measure(recovery)} on {count(recovery['images'])} test images: {steps}{end}"


def recovery_words(report: Mapping[str, Any]) -> str:
    """What the shares are of, and what the steps are."""
    recovery = report["recovery"]
    steps = "After the cut, what is left has the original's weights."
    if recovery["reconstructed"] is not None:
        steps += " Reconstruction solves the layers again, without labels."
    if recovery["finetuned"] is None:
        steps += " It was not fine-tuned."
    what = f"{_measure(recovery)[0].upper()}{_measure(recovery)[1:]}"
    return f"{what} on {count(recovery['images'])} test images, the same at each step, in PyTorch and float32. {steps}"


def recovery_table(report: Mapping[str, Any]) -> Table:
    """The steps and what each has right."""
    what = _measure(report["recovery"])
    rows = tuple((name.capitalize(), percent(share)) for name, share in _steps(report["recovery"]))
    return Table(("Step", f"{what[0].upper()}{what[1:]}"), rows, frozenset({1}))


def recovery_chart(report: Mapping[str, Any]) -> str:
    """A bar for each step, on an axis from 0 to 100%."""
    steps = _steps(report["recovery"])
    parts = svg.grid(svg.Axis(0, 100, 25), "%")
    for number, (name, share) in enumerate(steps):
        style = "original" if name == NAMES["original"] else "pruned"
        bar = svg.rect(0, -6, share * 100, 12, f"bar {style}", hint=f"{name}: {percent(share)}")
        parts.append(
            svg.row(number, [svg.name(name.capitalize(), "start"), bar, svg.value(percent(share), faint=False)])
        )
    line = recovery_line(report)
    return svg.figure("Steps", line, parts, f"--rows:{len(steps)}", "rows", recovery_words(report))


def _steps(recovery: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The steps that there were; agreement of the original with itself says nothing."""
    shown = [key for key in NAMES if recovery[key] is not None]
    return [(NAMES[key], recovery[key]) for key in shown if key != "original" or recovery["measure"] == "accuracy"]


def _measure(recovery: Mapping[str, Any]) -> str:
    measure: Measure = recovery["measure"]
    return MEASURES[measure]
