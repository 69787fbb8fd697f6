"""sweep.json: the cells of a sweep, the outcome of each, and when and where its steps ran."""

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

    ``device`` is the device that it had exclusively for its measurements; ``attempt`` counts from 1 and increases each
    time that a machine is lost.
    """

    step: str
    began: NonNegative
    ended: NonNegative
    where: str
    device: str | None
    attempt: PositiveCount


@dataclass(frozen=True, kw_only=True)
class CellFigures:
    """The results: scores are fractions, of accuracy or, without labels, of agreement with the original.

    ``latency_ms`` is the measured median. Its interval is the 95% interval of the ratio to the original, multiplied by
    the original's median. Latencies and everything derived from them are None if nothing was measured. ``decided_by``
    is the score on validation images. ``file`` is the network to ship, relative to the run's folder. ``invalid`` is the
    reason why the figures are meaningless; empty if they are meaningful.
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
    """One cell. ``run`` is its folder next to this file; ``classes`` is the name of its group of classes.

    ``problems`` are the parts of the request that it missed, or why it failed; ``figures`` is None until it finishes.
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
    """All cells, in the order of the matrix. ``max_drop`` is the number of points that may be lost, if specified."""

    cells: tuple[CellRecord, ...]
    max_drop: NonNegative | None
