"""Chooses the range that integers represent from a histogram of a tensor's values.

Values outside the range are clipped. A small range has fine steps and clips many values, a large one has coarse steps
and clips few; the methods differ in this trade-off.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINS", "LEVELS", "Histogram", "Method", "range_by"]

Method = Literal["min-max", "entropy", "percentile", "mse"]
Doubles = NDArray[np.float64]

BINS = 2048
LEVELS = 256
"""Levels of eight bits."""

# With fewer values, such as logits, a histogram is too sparse to clip any.
FEW = 4 * BINS
# Ranges tried for the least squared error: from the whole range down to this share of it, in this many steps.
SMALLEST_SHARE, TRIED = 0.05, 64
# Levels of the values' distribution after quantisation, as in TensorRT's calibration: those of one sign in eight bits.
ENTROPY_LEVELS, ENTROPY_STRIDE = 128, 16


@dataclass(frozen=True)
class Histogram:
    """Counts of values in each of BINS equal bins from ``low`` to ``high``, where ``low`` <= 0 <= ``high``."""

    low: float
    high: float
    counts: Doubles

    @property
    def edges(self) -> Doubles:
        """The bins' edges, BINS + 1 of them."""
        return np.linspace(self.low, self.high, len(self.counts) + 1)

    @property
    def centres(self) -> Doubles:
        """The middle of each bin."""
        edges = self.edges
        middles: Doubles = (edges[:-1] + edges[1:]) / 2
        return middles

    def outside(self, low: float, high: float) -> float:
        """The share of values below ``low`` or above ``high``, to the precision of a bin."""
        beyond = (self.centres < low) | (self.centres > high)
        return float(self.counts[beyond].sum() / max(self.counts.sum(), 1))


def range_by(method: Method, histogram: Histogram, percentile: float) -> tuple[float, float]:
    """The range, which includes 0, that ``method`` chooses; ``percentile`` applies to the method of that name only.

    - ``min-max``: all values.
    - ``percentile``: all values except 100 - ``percentile`` percent at each end.
    - ``mse``: the range with the smallest mean squared quantisation error.
    - ``entropy``: the range with the smallest Kullback-Leibler divergence of the distributions of magnitudes before and
      after quantisation (S. Migacz, "8-bit Inference with TensorRT", GTC 2017).

    With fewer than FEW values, none is clipped.
    """
    if histogram.low == histogram.high or histogram.counts.sum() < FEW:
        return histogram.low, histogram.high
    match method:
        case "min-max":
            return histogram.low, histogram.high
        case "percentile":
            return _by_percentile(histogram, percentile)
        case "mse":
            return _by_error(histogram)
        case "entropy":
            return _by_entropy(histogram)


def _by_percentile(histogram: Histogram, percentile: float) -> tuple[float, float]:
    edges, share = histogram.edges, np.cumsum(histogram.counts) / histogram.counts.sum()
    rest = 1 - percentile / 100
    low = edges[np.searchsorted(share, rest, side="right")]
    high = edges[1 + np.searchsorted(share, percentile / 100, side="left")]
    return min(float(low), 0.0), max(float(high), 0.0)


def _by_error(histogram: Histogram) -> tuple[float, float]:
    """Search the upper end with the lower one fixed, then the lower one: two searches instead of one over all pairs."""
    shares = np.linspace(1, SMALLEST_SHARE, TRIED)
    low, high = histogram.low, histogram.high
    high = min((float(histogram.high * share) for share in shares), key=lambda end: _squared_error(histogram, low, end))
    low = min((float(histogram.low * share) for share in shares), key=lambda end: _squared_error(histogram, end, high))
    return low, high


def _squared_error(histogram: Histogram, low: float, high: float) -> float:
    if low == high:
        return float(histogram.counts @ histogram.centres**2)
    step = (high - low) / (LEVELS - 1)
    zero = np.round(-low / step)
    values = histogram.centres
    quantised = (np.clip(np.round(values / step) + zero, 0, LEVELS - 1) - zero) * step
    return float(histogram.counts @ (values - quantised) ** 2)


def _by_entropy(histogram: Histogram) -> tuple[float, float]:
    largest = max(-histogram.low, histogram.high)
    counts, _ = np.histogram(np.abs(histogram.centres), BINS, (0, largest), weights=histogram.counts)
    counts[0] = counts[1]  # zeros, half of all values after a ReLU, are exact in any range
    ends = range(ENTROPY_LEVELS, BINS + 1, ENTROPY_STRIDE)
    best = min(ends, key=lambda end: _divergence(counts, end))
    limit = largest * best / BINS
    return max(histogram.low, -limit), min(histogram.high, limit)


def _divergence(counts: Doubles, end: int) -> float:
    """KL(all values, clipped to the first ``end`` bins || the values in these bins, in ENTROPY_LEVELS levels)."""
    inside = counts[:end]
    clipped = inside.copy()
    clipped[-1] += counts[end:].sum()
    level = np.minimum(np.arange(end) * ENTROPY_LEVELS // end, ENTROPY_LEVELS - 1)
    filled = inside > 0
    total = np.bincount(level, inside, ENTROPY_LEVELS)
    spread = np.bincount(level, filled.astype(float), ENTROPY_LEVELS)
    merged = np.where(filled, total[level] / np.maximum(spread[level], 1), 0)
    if not merged.sum() or np.any((clipped > 0) & (merged == 0)):
        return np.inf
    p, q = clipped / clipped.sum(), merged / merged.sum()
    some = p > 0
    return float(np.sum(p[some] * np.log(p[some] / q[some])))
