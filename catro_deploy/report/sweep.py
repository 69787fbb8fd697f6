"""A sweep as tables and as one HTML page: a front for each target, what to ship where, all cells."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from catro_deploy.records.sweep import CellFigures, CellRecord, SweepRecord
from catro_deploy.report.cells import Front, fronts
from catro_deploy.report.fronts import front_chart, short_name
from catro_deploy.report.rendering import render
from catro_deploy.report.shipping import kilobytes
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import change_interval, loss_words, minus, ms, percent, points
from catro_deploy.units import counted

__all__ = ["cells_table", "figure_words", "sweep_page", "sweep_words"]

NONE = "-"
OUTCOMES = {"waiting": "not run yet", "running": "not finished", "done": "met", "missed": "missed", "failed": "FAILED"}


def sweep_words(sweep: SweepRecord) -> str:
    """``12 cells: 10 met all requirements, 1 missed a requirement, 1 failed.``"""
    of = Counter(map(_outcome, sweep.cells))
    left = of[OUTCOMES["waiting"]] + of[OUTCOMES["running"]]
    parts = [f"{of['met']} met all requirements"]
    parts += [f"{of['missed']} missed a requirement"] if of["missed"] else []
    parts += [f"{of['not measured']} not measured"] if of["not measured"] else []
    parts += [f"{of['FAILED']} failed"] if of["FAILED"] else []
    parts += [f"{left} not finished"] if left else []
    return f"{counted(len(sweep.cells), 'cell')}: {', '.join(parts)}."


def cells_table(sweep: SweepRecord) -> Table:
    """A row for each cell, for the screen."""
    rows = tuple((cell.name, *_figures(cell.figures), _outcome(cell), _reason(cell)) for cell in sweep.cells)
    head = ("cell", "score", "points", "latency", "of the original's", "size", "outcome", "")
    width = len(head) if any(row[-1] for row in rows) else len(head) - 1
    return Table(head[:width], tuple(row[:width] for row in rows), frozenset({1, 2, 3, 4, 5}))


def figure_words(figures: CellFigures) -> str:
    """The results in a few words: ``98.20%, 0.412 ms (0.493x), 45.1 kB``."""
    score, _, latency, ratio, size = _figures(figures)
    return ", ".join(
        text for text in (score, f"{latency} ({ratio})" if ratio != NONE else "", size) if text.strip(NONE)
    )


def _figures(figures: CellFigures | None) -> tuple[str, ...]:
    if figures is None:
        return (NONE,) * 5
    return (
        NONE if figures.score is None else percent(figures.score),
        NONE if figures.change_points is None else points(figures.change_points),
        NONE if figures.latency_ms is None else f"{ms(figures.latency_ms)} ms",
        NONE if figures.ratio is None else f"{figures.ratio:.3f}x",
        NONE if figures.bytes is None else kilobytes(figures.bytes),
    )


def _outcome(cell: CellRecord) -> str:
    """The outcome of a cell; a cell without measurements has met nothing."""
    unmeasured = cell.status == "done" and cell.figures is not None and cell.figures.latency_ms is None
    return "not measured" if unmeasured else OUTCOMES[cell.status]


def _reason(cell: CellRecord) -> str:
    return cell.problems[0] if cell.problems else ""


def sweep_page(sweep: SweepRecord, name: str) -> str:
    """Everything as one HTML page, which is next to the folders of the cells."""
    found = fronts(sweep)
    return render(
        "sweep.html.jinja",
        name=name,
        words=sweep_words(sweep),
        notices=_notices(sweep),
        failed=any(cell.status == "failed" for cell in sweep.cells),
        ship=ship_table(found),
        ship_words=_ship_words(sweep.max_drop),
        sections=[(target, tuple(of)) for target, of in groupby(found, key=lambda front: front.target)],
        several_groups=len({front.classes for front in found}) > 1,
        best_words=_best_words,
        front_chart=front_chart,
        columns=("Score", "Points", "Latency", "Of the original's", "Size"),
        rows=_rows,
    )


def _notices(sweep: SweepRecord) -> list[tuple[str, str]]:
    """What to read first: problems and the cells that have them, each problem once."""
    found: dict[str, list[str]] = {}
    for cell in sweep.cells:
        if cell.problems:
            found.setdefault(" ".join(cell.problems), []).append(cell.name)
        if cell.figures and cell.figures.invalid:
            found.setdefault(f"The figures are NOT valid: {cell.figures.invalid}.", []).append(cell.name)
    return [(", ".join(names), text) for text, names in found.items()]


def ship_table(found: Sequence[Front]) -> Table:
    """What to ship where: a row for each target and group of classes."""
    rows = tuple((front.target, front.classes, *_shipped(front)) for front in found)
    head = ("Target", "Classes", "Ship", "Score", "Latency", "Of the original's", "Size")
    return Table(head, rows, frozenset({3, 4, 5, 6}))


def _shipped(front: Front) -> tuple[str, ...]:
    cell = front.shipped or (front.best[0] if len(front.best) == 1 else None)
    if cell and cell.figures:
        score, _, latency, ratio, size = _figures(cell.figures)
        return f"{cell.run}/{cell.figures.file}", score, latency, ratio, size
    choice = f"one of {len(front.best)}, see below" if front.best else f"nothing: {_why_none(front)}"
    return choice, "", "", "", ""


def _why_none(front: Front) -> str:
    """Why no cell of ``front`` is recommended."""
    met = [cell for cell in front.cells if cell.status == "done" and cell.figures and cell.figures.latency_ms]
    return "there are no validation images to decide on" if met else "no measured cell met all requirements"


def _ship_words(max_drop: float | None) -> str:
    """How the choice was made."""
    if max_drop is None:
        rule = "No loss limit was set (--max-drop): where several cells are not dominated, the choice is yours."
    else:
        rule = f"Of the cells that met all requirements, the fastest that loses at most {loss_words(max_drop)}."
    return f"{rule} Decided on validation images; scores are on test images, which no decision used."


def _best_words(front: Front) -> str:
    """The cells that are not dominated."""
    if not front.best:
        return f"None can be recommended: {_why_none(front)}."
    names = ", ".join(map(short_name, front.best))
    return f"Not dominated, on validation images: {names}."


def _rows(front: Front) -> list[tuple[CellRecord, str, tuple[tuple[str, str], ...], str]]:
    """All cells: the record, its short name, texts with their intervals, and its outcome."""
    return [(cell, short_name(cell), _row(cell.figures), _outcome(cell)) for cell in front.cells]


def _row(figures: CellFigures | None) -> tuple[tuple[str, str], ...]:
    """Score, change, latency, ratio and size, each with its interval."""
    score, change, latency, ratio, size = _figures(figures)
    if figures is None:
        return tuple((text, "") for text in (score, change, latency, ratio, size))
    changed = figures.change_ci95
    return (
        (score, _between(figures.score_ci95, percent)),
        (minus(change), minus(change_interval(changed).removeprefix("95% CI ")) if changed else ""),
        (latency, _between(figures.latency_ci95, ms)),
        (ratio, _between(figures.ratio_ci95, "{:.3f}".format)),
        (size, ""),
    )


def _between(bounds: Sequence[float] | None, shown: Callable[[float], str]) -> str:
    return f"{shown(bounds[0])} to {shown(bounds[1])}" if bounds else ""
