"""A chart of the front of a sweep's cells: scores over measured latency, both with their intervals."""

from collections.abc import Callable, Sequence
from html import escape
from statistics import median

from catro_deploy.records.sweep import CellFigures, CellRecord
from catro_deploy.report import svg
from catro_deploy.report.cells import Front
from catro_deploy.report.wording import ms, percent
from catro_deploy.settings import TARGETS_OWN

__all__ = ["front_chart", "short_name"]

TOP, HEIGHT, BELOW = 24.0, 190.0, 44.0
METRICS = {"accuracy": "Accuracy", "agreement": "Same prediction as the original"}
MARKS = {"fp32": ("dot", 4.0), "fp16": ("diamond", 4.0), "int8": ("ring", 4.0)}
"""Shape and radius of a cell's mark, by the served precision."""
NARROWEST, LETTER, LINE = 290.0, 7.0, 13.0
"""Pixels: width of the plot on a phone, at most of a letter, and between two lines of names."""
Place = Callable[[float], float]
Drawn = tuple[CellRecord, CellFigures, float, float]
"""A cell with its figures, its latency in milliseconds and its score, a fraction."""


def front_chart(front: Front) -> str:
    """The cells of ``front`` that were measured; empty if there are none."""
    drawn: list[Drawn] = [
        (cell, cell.figures, cell.figures.latency_ms, cell.figures.score)
        for cell in front.cells
        if cell.figures and cell.figures.latency_ms is not None and cell.figures.score is not None
    ]
    if not drawn:
        return ""
    original = _original([figures for _, figures, _, _ in drawn])
    across, up = _axes(drawn, original)

    x = across.place

    def y(score: float) -> float:
        return TOP + HEIGHT * (1 - up.place(100 * score) / 100)

    best = sorted((time, score) for cell, _, time, score in drawn if cell in front.best)
    line = [(x(time), 100 - up.place(100 * score)) for time, score in best]
    heads = ("ms, measured", f"{METRICS[drawn[0][1].metric]}, test images")
    parts = svg.scales(across, up, TOP, HEIGHT, heads, ("", "%"))
    parts += [svg.curve(line, TOP, HEIGHT, "stair")] if len(line) > 1 else []
    if original:
        hint = f"original: {percent(original[1])} at {ms(original[0])} ms"
        parts.append(svg.circle(x(original[0]), y(original[1]), 5, "ring original", hint=hint))
    for one in drawn:
        parts += _whiskers(one, x, y)
    for one in drawn:
        parts += _mark(one, x, y, chosen=one[0] is front.shipped)
    parts += _labels([one for one in drawn if one[0] in front.best], x, y, front.shipped)
    described = "; ".join(f"{short_name(cell)}: {percent(score)} at {ms(time)} ms" for cell, _, time, score in drawn)
    size = f"height:{TOP + HEIGHT + BELOW:g}px"
    title = f"Front of {front.target} for {front.classes}"
    return svg.figure(title, described, parts, size, "curves", _caption(drawn, across, up), _legend(front, drawn))


def _original(figures: Sequence[CellFigures]) -> tuple[float, float] | None:
    """The original's latency in milliseconds, the median of its measurements in all cells, and its score."""
    times = [one.original_ms for one in figures if one.original_ms is not None]
    scores = [one.original_score for one in figures if one.original_score is not None]
    return (median(times), scores[0]) if times and scores else None


def _axes(drawn: Sequence[Drawn], original: tuple[float, float] | None) -> tuple[svg.Axis, svg.Axis]:
    times = [time for _, figures, time, _ in drawn for time in (time, *(figures.latency_ci95 or ()))]
    scores = [score for _, figures, _, score in drawn for score in (score, *(figures.score_ci95 or ()))]
    if original:
        times.append(original[0])
        scores.append(original[1])
    across = svg.zoomed(min(times), max(times), 5, floor=0)
    return across, svg.zoomed(100 * min(scores), 100 * max(scores), 4, floor=0, ceiling=100)


def _whiskers(one: Drawn, x: Place, y: Place) -> list[str]:
    """The intervals of latency and score."""
    _, figures, time, score = one
    parts = []
    if figures.latency_ci95:
        low, high = map(x, figures.latency_ci95)
        parts.append(svg.line(low, y(score), high, y(score), "spread"))
    if figures.score_ci95:
        low, high = map(y, figures.score_ci95)
        parts.append(svg.line(x(time), low, x(time), high, "spread"))
    return parts


def _mark(one: Drawn, x: Place, y: Place, *, chosen: bool) -> list[str]:
    cell, figures, time, score = one
    shape, radius = MARKS[figures.precision or "fp32"]
    missed = "" if cell.status == "done" else " missed"
    hint = f"{short_name(cell)}: {percent(score)} at {ms(time)} ms{', missed a requirement' if missed else ''}"
    parts = [svg.circle(x(time), y(score), 8, "ring chosen")] if chosen else []
    return [*parts, svg.circle(x(time), y(score), radius, f"{shape} pruned{missed}", hint=hint)]


def _labels(best: Sequence[Drawn], x: Place, y: Place, shipped: CellRecord | None) -> list[str]:
    """The names of the best cells, below their marks, or above where they would touch another name on a phone."""
    parts: list[str] = []
    taken: list[tuple[float, float, float]] = []
    for cell, _, time, score in sorted(best, key=lambda one: one[2]):
        words = short_name(cell)
        side, dx = ("begin", 10) if x(time) < 80 else ("end", -10)
        start = x(time) / 100 * NARROWEST + dx - (LETTER * len(words) if side == "end" else 0)
        end = start + LETTER * len(words)
        below, above = y(score) + 16, y(score) - 9
        at = next((at for at in (below, above) if _is_free(at, start, end, taken)), below)
        taken.append((at, start, end))
        parts.append(svg.text(x(time), at, words, f"tick {side}{' chosen' if cell is shipped else ''}", dx=dx))
    return parts


def _is_free(at: float, start: float, end: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    """Whether a name on the line ``at`` touches none of ``taken``, each with its line, start and end in pixels."""
    return all(abs(at - line) >= LINE or end < left or right < start for line, left, right in taken)


def short_name(cell: CellRecord) -> str:
    """What identifies a cell within its target and group: the budget and, unless it is the target's, the precision."""
    return cell.budget if cell.precision == TARGETS_OWN else f"{cell.budget} {cell.precision}"


def _caption(drawn: Sequence[Drawn], across: svg.Axis, up: svg.Axis) -> str:
    few = any(figures.images and figures.images < 100 for _, figures, _, _ in drawn)
    return (
        "Bars, and small figures below, are 95% intervals: of the score, and of the latency's ratio to the original, "
        "times the original's median. "
        f"Both axes are zoomed: they start at {across.format(across.low)} ms and {up.format(up.low)}%. The line joins "
        "the cells that are not dominated on validation images."
        + (" There are fewer than 100 test images." if few else "")
    )


def _legend(front: Front, drawn: Sequence[Drawn]) -> str:
    served = dict.fromkeys(figures.precision or "fp32" for _, figures, _, _ in drawn)
    entries: list[tuple[str, str]] = [(f"{MARKS[precision][0]} pruned", precision) for precision in sorted(served)]
    if any(cell.status != "done" for cell, _, _, _ in drawn):
        entries.append(("dot pruned missed", "missed a requirement"))
    entries.append(("ring original", "original"))
    if front.shipped:
        entries.append(("ring chosen", f"to ship: {escape(short_name(front.shipped))}"))
    return svg.legend(*entries)
