"""Repeat measurements that a busy machine has disturbed.

The original and the pruned network are measured interleaved, but a neighbour on the same processor slows networks by
different shares, in particular those in different precisions. It shows in a wide interval of the speedup, or in an
original that is slower than before, at the median or at a percentile that a budget limits.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from catro_deploy.budget import MEDIAN
from catro_deploy.records import Speedup

__all__ = ["MEASUREMENTS", "Repetition"]

M = TypeVar("M")

# The closed loop accepts networks within 3% of a budget.
CERTAIN = 0.03
"""Half the width of the speedup's interval, as a share of the speedup, up to which a measurement is certain."""
UNDISTURBED, UNDISTURBED_TAIL = 0.05, 0.25
"""The shares by which the original's median, and a higher percentile, may exceed the smallest that was measured."""
MEASUREMENTS = 3


@dataclass
class Repetition(Generic[M]):
    """Repeats a measurement until it is certain and undisturbed, by default ``MEASUREMENTS`` times at most.

    Attributes:
        figures: the speedup, and percentiles of the original's latency in microseconds, of a measurement.
        fastest_original_us: the smallest of each of these percentiles so far.
    """

    figures: Callable[[M], tuple[Speedup, Mapping[int, float]]]
    fastest_original_us: dict[int, float] = field(default_factory=dict)

    def repeat(self, measure: Callable[[], M], most: int = MEASUREMENTS) -> tuple[M, int]:
        """The least doubtful of at most ``most`` measurements, and their number."""
        made: list[M] = []
        for _ in range(most):
            made.append(measure())
            for percent, us in self.figures(made[-1])[1].items():
                self.fastest_original_us[percent] = min(us, self.fastest_original_us.get(percent, math.inf))
            if self.doubt(made[-1]) <= 1:
                break
        return min(made, key=self.doubt), len(made)

    def doubt(self, measurement: M) -> float:
        """How uncertain or disturbed the measurement is; above 1, it is repeated."""
        speedup, original_us = self.figures(measurement)
        low, high = speedup.ci95
        doubts = [(high - low) / (2 * speedup.median) / CERTAIN]
        for percent, us in original_us.items():
            allowed = UNDISTURBED if percent == MEDIAN else UNDISTURBED_TAIL
            doubts.append((us / self.fastest_original_us[percent] - 1) / allowed)
        return max(doubts)
