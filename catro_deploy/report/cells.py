"""The figures of a sweep's cells, which of them are not dominated, and what to ship where."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from catro_deploy.records.report import Report
from catro_deploy.records.sweep import CellFigures, CellRecord, SweepRecord
from catro_deploy.report.verdict import invalid_original

__all__ = ["Front", "cell_figures", "fronts"]


@dataclass(frozen=True)
class Front:
    """The cells of one target and one group of classes, in the order of the matrix.

    ``best`` are the cells that met the whole request and that no other such cell dominates on validation images, that
    is, no other is as fast and scores higher, or is faster and scores as high. The fastest comes first. ``shipped`` is
    the fastest of them whose loss on validation images is within the allowed one; None if no loss limit was specified,
    or if no cell is within it.
    """

    target: str
    classes: str
    cells: tuple[CellRecord, ...]
    best: tuple[CellRecord, ...]
    shipped: CellRecord | None


def cell_figures(report: Report) -> CellFigures:
    """The figures of a finished cell."""
    return CellFigures(
        **_scores(report), **_decided(report), **_latency(report), **_file(report), invalid=invalid_original(report)
    )


def _scores(report: Report) -> dict[str, Any]:
    """Scores on test images: accuracy or, without labels, agreement with the original."""
    verified, agreement = report.verification, report.agreement
    if not report.labelled and agreement:
        return {
            "metric": "agreement",
            "score": agreement.share,
            "score_ci95": agreement.ci95,
            "original_score": 1.0,
            "change_points": round(100 * (agreement.share - 1), 9),
            "change_ci95": None,
            "images": verified.test_images if verified else None,
        }
    drop = report.accuracy_drop_points
    return {
        "metric": "accuracy",
        "score": report.pruned.accuracy,
        "score_ci95": report.pruned.accuracy_ci95,
        "original_score": report.original.accuracy,
        "change_points": None if drop is None else -drop,
        "change_ci95": report.accuracy_change_ci95,
        "images": verified.test_images if verified else None,
    }


def _decided(report: Report) -> dict[str, Any]:
    """Scores on validation images: accuracy or, without labels, agreement with the original."""
    quantize = report.quantize
    score, original = report.validation_accuracy, report.original_validation_accuracy
    if not report.labelled:
        original = 1.0
    if quantize and quantize.shipped in quantize.candidates:
        shipped = quantize.candidates[quantize.shipped]
        score = shipped.accuracy if report.labelled else shipped.agreement
    return {"decided_by": score, "original_decided_by": original}


def _latency(report: Report) -> dict[str, Any]:
    if not report.latencies or not report.speedup:
        names = ("latency_ms", "latency_ci95", "original_ms", "ratio", "ratio_ci95")
        return dict.fromkeys(names)
    original, pruned = report.latencies
    low, high = report.speedup.ratio_ci95
    return {
        "latency_ms": pruned.p50,
        "latency_ci95": (low * original.p50, high * original.p50),
        "original_ms": original.p50,
        "ratio": report.speedup.ratio,
        "ratio_ci95": (low, high),
    }


def _file(report: Report) -> dict[str, Any]:
    shipped = report.ship
    if shipped is None:
        return dict.fromkeys(("precision", "file", "bytes"))
    return {"precision": shipped.precision, "file": f"ship/{shipped.file}", "bytes": shipped.bytes}


def fronts(sweep: SweepRecord) -> tuple[Front, ...]:
    """A front for each target and group of classes, in the order of the matrix."""
    by_place = sorted(sweep.cells, key=lambda cell: _order(sweep, cell))
    return tuple(
        _front(target, classes, tuple(cells), sweep.max_drop)
        for (target, classes), cells in groupby(by_place, key=lambda cell: (cell.target, cell.classes))
    )


def _order(sweep: SweepRecord, cell: CellRecord) -> tuple[int, int]:
    targets = [*dict.fromkeys(one.target for one in sweep.cells)]
    groups = [*dict.fromkeys(one.classes for one in sweep.cells)]
    return targets.index(cell.target), groups.index(cell.classes)


def _front(target: str, classes: str, cells: tuple[CellRecord, ...], max_drop: float | None) -> Front:
    rated = [(cell, *rating) for cell in cells if cell.status == "done" and (rating := _rating(cell))]
    best = [one for one in rated if not any(_beats(other[1:], one[1:]) for other in rated)]
    ranked = [cell for cell, _, _ in sorted(best, key=lambda one: one[1])]
    return Front(target, classes, cells, tuple(ranked), _within(ranked, max_drop))


def _rating(cell: CellRecord) -> tuple[float, float] | None:
    """Milliseconds and the score on validation images; None if either is unknown."""
    figures = cell.figures
    if figures is None or figures.latency_ms is None or figures.decided_by is None:
        return None
    return figures.latency_ms, figures.decided_by


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    (ms, score), (others_ms, others_score) = one, other
    return ms <= others_ms and score >= others_score and one != other


def _within(best: Sequence[CellRecord], max_drop: float | None) -> CellRecord | None:
    """The fastest of ``best`` that loses no more than ``max_drop`` points on validation images."""
    for cell in best:
        figures = cell.figures
        assert figures is not None
        if max_drop is None or figures.decided_by is None or figures.original_decided_by is None:
            continue
        if round(100 * (figures.original_decided_by - figures.decided_by), 9) <= max_drop:
            return cell
    return None
