"""Repeat measurements that a busy machine has disturbed.

The original and the pruned network are measured interleaved, but a neighbour on the same processor slows networks by
different shares, in particular those in different precisions. It shows in a wide interval of the speedup, or in an
original that is slower than before.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from catro_deploy.records import Speedup

__all__ = ["MEASUREMENTS", "Repetition"]

M = TypeVar("M")

# The closed loop accepts networks within 3% of a budget.
CERTAIN = 0.03
"""Half the width of the speedup's interval, as a share of the speedup, up to which a measurement is certain."""
UNDISTURBED = 0.05
"""The share by which the original may be slower than in its fastest measurement."""
MEASUREMENTS = 3


@dataclass
class Repetition(Generic[M]):
    """Repeats a measurement until it is certain and undisturbed, by default ``MEASUREMENTS`` times at most.

    Attributes:
        figures: the speedup, and the original's median in microseconds, of a measurement.
        fastest_original_us: the smallest of the original's medians so far.
    """

    figures: Callable[[M], tuple[Speedup, float]]
    fastest_original_us: float = math.inf

    def repeat(self, measure: Callable[[], M], most: int = MEASUREMENTS) -> tuple[M, int]:
        """The least doubtful of at most ``most`` measurements, and their number."""
        made: list[M] = []
        for _ in range(most):
            made.append(measure())
            self.fastest_original_us = min(self.fastest_original_us, self.figures(made[-1])[1])
            if self.doubt(made[-1]) <= 1:
                break
        return min(made, key=self.doubt), len(made)

    def doubt(self, measurement: M) -> float:
        """How uncertain or disturbed the measurement is; above 1, it is repeated."""
        speedup, original_us = self.figures(measurement)
        low, high = speedup.ci95
        uncertainty = (high - low) / (2 * speedup.median)
        return max(uncertainty / CERTAIN, (original_us / self.fastest_original_us - 1) / UNDISTURBED)
