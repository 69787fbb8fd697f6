"""The same networks in several runtimes: the matrix, and which files to use."""

from catro_deploy.records import RuntimeRow, Runtimes
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import duration, percent, ratios
from catro_deploy.units import counted

__all__ = ["runtimes_table", "runtimes_words"]


def runtimes_table(found: Runtimes) -> Table:
    """A row for each runtime, network and precision."""
    rows = []
    for row in found.rows:
        faster, low, high = ratios(row.speedup.median, *row.speedup.ci95)
        accuracy = "" if row.accuracy is None else percent(row.accuracy)
        times = (duration(row.p50_us), f"{faster}x ({low} to {high})")
        rows.append((row.runtime, row.network, row.precision, *times, accuracy, "served" if row.served else ""))
    head = ("Runtime", "Network", "Precision", "p50", "Speed against the first row (95% CI)", "Accuracy", "")
    return Table(head, tuple(rows), frozenset({3, 4, 5}))


def runtimes_words(found: Runtimes) -> str:
    """How the runtimes were measured, the fastest and its files, and the missing ones."""
    best = found.rows[found.fastest]
    images = f"; accuracy on {counted(found.test_images, 'test image')}" if best.accuracy is not None else ""
    text = (
        f"All were measured in one process on the device, interleaved{images}. The pruned network has its smallest "
        f"median in {best.precision} by {best.runtime}, from {' and '.join(best.files)}."
    )
    near = [f"{row.precision} by {row.runtime}" for row in found.rows if row != best and _is_near(row, best)]
    if near:
        text += f" Within the noise of it: {', '.join(near)}."
    if not best.served:
        text += " It is not what this run ships."
    for name, reason in found.missing.items():
        text += f" Without {name}: {reason}"
    return " ".join([text, *found.warnings])


def _is_near(row: RuntimeRow, best: RuntimeRow) -> bool:
    """Whether ``row`` is of the same network as ``best``, and the intervals of both overlap."""
    return row.network == best.network and row.speedup.ci95[1] >= best.speedup.ci95[0]
