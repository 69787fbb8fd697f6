"""The accuracy after each step, starting with the cut: as a line of text, a table and a bar chart."""

from catro_deploy.records import Recovery
from catro_deploy.report import svg
from catro_deploy.report.agreement import METRICS
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import percent
from catro_deploy.units import counted

__all__ = ["recovery_chart", "recovery_line", "recovery_table", "recovery_title", "recovery_words"]


def recovery_line(recovery: Recovery) -> str:
    """All steps in one line.

    ``accuracy on 800 test images: original 92.60%, after the cut 11.60%, reconstructed 85.40%, fine-tuned 91.10%``
    """
    steps = ", ".join(f"{name} {percent(share)}" for name, share in _steps(recovery))
    end = "" if recovery.finetuned is not None else ", without fine-tuning"
    return f"{METRICS[recovery.metric]} on {counted(recovery.images, 'test image')}: {steps}{end}"


def recovery_title(recovery: Recovery) -> str:
    """The heading of the section: ``Accuracy after each step``, or of agreement if images have no labels."""
    return f"{_heading(recovery)} after each step"


def recovery_words(recovery: Recovery) -> str:
    """What the scores mean, and what the steps are."""
    steps = "After the cut, the remaining channels have the original's weights."
    if recovery.reconstructed is not None:
        steps += " Reconstruction solves the layers again, without labels."
    if recovery.finetuned is None:
        steps += " The network served is the one without fine-tuning."
    what = _heading(recovery)
    return f"{what} on {counted(recovery.images, 'test image')}, the same at each step, in PyTorch and float32. {steps}"


def recovery_table(recovery: Recovery) -> Table:
    """The steps and the score of each."""
    rows = tuple((name.capitalize(), percent(share)) for name, share in _steps(recovery))
    return Table(("Step", _heading(recovery)), rows, frozenset({1}))


def recovery_chart(recovery: Recovery) -> str:
    """A bar for each step, on an axis from 0 to 100%."""
    steps = _steps(recovery)
    parts = svg.grid(svg.Axis(0, 100, 25), "%")
    for number, (name, share) in enumerate(steps):
        style = "original" if name == "original" else "pruned"
        bar = svg.rect(0, -6, share * 100, 12, f"bar {style}", hint=f"{name}: {percent(share)}")
        parts.append(
            svg.row(number, [svg.name(name.capitalize(), "start"), bar, svg.value(percent(share), faint=False)])
        )
    line = recovery_line(recovery)
    return svg.figure("Steps", line, parts, f"--rows:{len(steps)}", "rows", recovery_words(recovery))


def _steps(recovery: Recovery) -> list[tuple[str, float]]:
    """The steps and their scores; the agreement of the original with itself is left out."""
    steps = {
        "original": recovery.original if recovery.metric == "accuracy" else None,
        "after the cut": recovery.cut,
        "reconstructed": recovery.reconstructed,
        "fine-tuned": recovery.finetuned,
    }
    return [(name, share) for name, share in steps.items() if share is not None]


def _heading(recovery: Recovery) -> str:
    what = METRICS[recovery.metric]
    return f"{what[0].upper()}{what[1:]}"
