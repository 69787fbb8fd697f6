"""sweep.json: the cells of a sweep, what became of each, and when its steps ran where."""

from dataclasses import dataclass
from typing import Literal

from catro_deploy.records.base import NonNegative, Points, Positive, PositiveCount, Record, Share
from catro_deploy.records.figures import Interval
from catro_deploy.records.verify import Metric, Precision

__all__ = ["CellFigures", "CellRecord", "CellStatus", "StepTimes", "SweepRecord"]

CellStatus = Literal["waiting", "running", "done", "missed", "failed"]


@dataclass(frozen=True)
class StepTimes:
    """When a step ran: ``began`` and ``ended`` in seconds since the epoch, by the clock of the machine ``where``.

    ``device`` is what it alone measured on; ``attempt`` counts from 1 and rises where a machine was lost.
    """

    step: str
    began: NonNegative
    ended: NonNegative
    where: str
    device: str | None
    attempt: PositiveCount


@dataclass(frozen=True, kw_only=True)
class CellFigures:
    """What came out: scores are fractions, of accuracy or, without labels, of agreement with the original.

    ``latency_ms`` is the median that was measured, with the 95% interval of its ratio to the original, times the
    original's median; None, as all that follows from it, where nothing was measured. ``decided_by`` is the score on
    validation images. ``file`` is the network to ship, in the run's folder. ``invalid`` says why the figures mean
    nothing; empty if they do.
    """

    metric: Metric
    score: Share | None
    score_ci95: Interval | None
    original_score: Share | None
    change_points: Points | None
    change_ci95: Interval | None
    images: PositiveCount | None
    decided_by: Share | None
    original_decided_by: Share | None
    latency_ms: Positive | None
    latency_ci95: Interval | None
    original_ms: Positive | None
    ratio: Positive | None
    ratio_ci95: Interval | None
    precision: Precision | None
    file: str | None
    bytes: PositiveCount | None
    invalid: str = ""


@dataclass(frozen=True)
class CellRecord:
    """One cell. ``run`` is its folder beside this file; ``classes`` is what its group of classes is called.

    ``problems`` are what it missed of what was asked, or why it failed; ``figures`` are None before its end.
    """

    name: str
    target: str
    classes: str
    budget: str
    precision: str
    run: str
    status: CellStatus
    problems: tuple[str, ...]
    steps: tuple[StepTimes, ...]
    figures: CellFigures | None


@dataclass(frozen=True)
class SweepRecord(Record):
    """All cells, in the order of the matrix. ``max_drop``: the points that may be lost, if that was said."""

    cells: tuple[CellRecord, ...]
    max_drop: NonNegative | None
