"""Rows of front.py as points with intervals, the front that they form, and which points are above ours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal

from benchmarks.accuracy.front_rows import BUDGETS, OURS, WAYS
from benchmarks.accuracy.reconstruction_page import shown_accuracy
from benchmarks.rows import gpu_of
from catro_deploy.statistics.intervals import wilson

__all__ = ["Interval", "Point", "Verdict", "Way", "compare", "original_of", "points_of", "undominated"]

Results = Iterable[Mapping[str, Any]]
Way = tuple[str, str]
"""Pruning method and training recipe."""


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """A pruned network: its share of the original's latency, and its accuracy in percent, the mean of ``seeds``."""

    way: Way
    budget: str
    latency: Interval
    accuracy: Interval
    seeds: int = 1


@dataclass(frozen=True)
class Verdict:
    """Position of a point relative to our front, and by how many points its accuracy is higher.

    "faster": none of our networks is as fast, so there is nothing to compare it with.
    """

    side: Literal["above", "level", "below", "faster"]
    gap: float


def points_of(results: Results) -> dict[Way, list[Point]]:
    """The points of one task and training by method and recipe, in the order of WAYS, each from fastest to slowest.

    The interval of an accuracy is Wilson's for the number of test images, around the mean of the seeds; that of a
    latency is the stored one. Rows that did not meet their budget have no point.
    """
    met = [row for row in results if "unmet" not in row]
    found: dict[Way, list[Point]] = {}
    for way in ((pruning, recipe) for pruning, recipes in WAYS.items() for recipe in recipes):
        for budget in BUDGETS:
            mine = [row for row in met if (row["pruning"], row["recipe"], row["budget"]) == (*way, budget)]
            if mine:
                latency = Interval(mine[0]["latency_ratio"], *mine[0]["latency_ratio_ci95"])
                accuracy = _with_interval(fmean(shown_accuracy(row) for row in mine), mine[0]["test_images"])
                found.setdefault(way, []).append(Point(way, budget, latency, accuracy, len(mine)))
    return {way: sorted(points, key=lambda point: point.latency.value) for way, points in found.items()}


def original_of(results: Results) -> Point | None:
    """The unpruned network, if any row has its accuracy: preferably on a CPU, since GPUs round differently."""
    for row in sorted(results, key=lambda row: gpu_of(row) is not None):
        if "unmet" not in row:
            accuracy = _with_interval(100 * row["original_accuracy"], row["test_images"])
            return Point(("original", ""), "1x", Interval(1.0, 1.0, 1.0), accuracy)
    return None


def undominated(points: Iterable[Point]) -> list[Point]:
    """The ``points`` for which no other is both as fast and as accurate, fastest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda one: (one.latency.value, -one.accuracy.value)):
        if not front or point.accuracy.value > front[-1].accuracy.value:
            front.append(point)
    return front


def compare(point: Point, points: Mapping[Way, Sequence[Point]], original: Point) -> Verdict | None:
    """Position of ``point`` relative to our front: lines through our ``points`` and the original; None without ours.

    It is above if the lower bound of its accuracy exceeds our front, drawn through the upper bounds of our accuracies
    and the lower bounds of our latencies, at the upper bound of its own latency; below if the same holds with all
    bounds exchanged.
    """
    ours = [one for (pruning, _), found in points.items() if pruning == OURS for one in found]
    if not ours:
        return None
    front = undominated([*ours, original])
    if point.latency.high < min(one.latency.low for one in ours):
        return Verdict("faster", 0.0)
    gap = point.accuracy.value - _at([(one.latency.value, one.accuracy.value) for one in front], point.latency.value)
    upper = _at([(one.latency.low, one.accuracy.high) for one in front], point.latency.high)
    lower = _at([(one.latency.high, one.accuracy.low) for one in front], point.latency.low)
    if point.accuracy.low > upper:
        return Verdict("above", gap)
    return Verdict("below" if point.accuracy.high < lower else "level", gap)


def _with_interval(percent: float, images: int) -> Interval:
    low, high = wilson(percent / 100, images)
    return Interval(percent, 100 * low, 100 * high)


def _at(line: Sequence[tuple[float, float]], x: float) -> float:
    """The height at ``x`` of a line through points; beyond its ends, the height of the end."""
    corners = sorted(line)
    if x <= corners[0][0]:
        return corners[0][1]
    for (left, below), (right, above) in pairwise(corners):
        if x <= right:
            return below + (above - below) * (x - left) / (right - left)
    return corners[-1][1]
