"""Which channels of a given number separate the classes best: the trace ratio and CATRO's Algorithm 1.

All functions take a Scatter of c channels. Algorithm 1 is Dinkelbach's method (1967) for 0-1 fractional programming: it
ends at the global optimum, and the ratio never decreases on the way (Theorem 2).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from catro_deploy.catro.scatter import Scatter
from catro_deploy.errors import NumericsError

__all__ = ["Selection", "ratio_curve", "scores", "select", "trace_ratio", "usable"]

DEAD_SHARE = 1e-9
"""Below this share of the layer's mean total scatter, a channel counts as constant."""


@dataclass(frozen=True)
class Selection:
    """Kept channels in ascending order, their trace ratio, and the rounds until it stopped growing."""

    kept: tuple[int, ...]
    ratio: float
    rounds: int


def usable(name: str, scatter: Scatter, ridge: float = 0.0) -> Scatter:
    """Return ``scatter`` with ``ridge`` times the layer's mean within-scatter added to that of each channel.

    The paper's ratio (``ridge`` 0) does not depend on a channel's scale: weak channels near the layer's average ratio
    come before strong ones just below it, and the few channels that stay carry little. The ridge, as in regularised
    discriminant analysis (Friedman, 1989), is a cost of keeping any channel. Without it each within-scatter is still
    kept above zero, so that every ratio is finite.

    Raises:
        NumericsError: it is not finite, or no channel varies within any class, so they cannot be ranked.
    """
    total = scatter.between + scatter.within
    if not np.isfinite(total).all():
        raise NumericsError(f"The scatter of {name} is not finite.", "Check the checkpoint and the normalisation.")
    if not scatter.within.sum() > DEAD_SHARE * total.sum():
        raise NumericsError(
            f"The channels of {name} are dead: within each class they never change.",
            "Check the checkpoint and that the samples of a class differ, or leave these channels as they are: "
            f'[prune] ignore = ["{name}"] in catro.toml',
        )
    within = np.maximum(scatter.within, DEAD_SHARE * total) + ridge * scatter.within.mean()
    return Scatter(scatter.between, within)


def trace_ratio(scatter: Scatter, channels: NDArray[np.intp]) -> float:
    """sum(between) / sum(within) over ``channels``; 0 if both are 0, infinity if only within is."""
    between, within = float(scatter.between[channels].sum()), float(scatter.within[channels].sum())
    if within > 0:
        return between / within
    return np.inf if between > 0 else 0.0


def scores(scatter: Scatter, ratio: float, temperature: float) -> NDArray[np.float64]:
    """Logarithms z of the channels' scores s = exp(z) at ``ratio``, shape (c,).

    The paper's z = between - ratio * within grows with samples and positions; divided by ``temperature`` times the
    layer's mean total scatter it does not. Dead channels get -inf: at z = 0 they would come before every channel that
    separates the classes less well than the average.
    """
    total = scatter.between + scatter.within
    z: NDArray[np.float64] = (scatter.between - ratio * scatter.within) / (temperature * total.mean())
    z[total <= DEAD_SHARE * total.mean()] = -np.inf
    return z


def select(scatter: Scatter, size: int, *, seed: int, epsilon: float) -> Selection:
    """Find the ``size`` channels with the highest trace ratio (Algorithm 1), starting from a random set.

    Raises:
        ValueError: ``size`` is not between 1 and c.
    """
    channels = len(scatter.between)
    if not 1 <= size <= channels:
        raise ValueError(f"{size} of {channels} channels cannot be chosen")
    start = np.random.default_rng(seed).permutation(channels)[:size]
    return _improve(scatter, start, epsilon)


def ratio_curve(scatter: Scatter, epsilon: float) -> NDArray[np.float64]:
    """The best trace ratio for every number of channels: element d - 1 is that of d channels, shape (c,)."""
    ratios = np.empty(len(scatter.between))
    kept = np.array([int(np.argmax(scores(scatter, 0.0, 1.0)))])
    for size in range(1, len(ratios) + 1):
        # The best set of one channel fewer, plus any other channel, is a nearly optimal start.
        start = kept if len(kept) == size else np.append(kept, np.setdiff1d(np.arange(len(ratios)), kept)[0])
        best = _improve(scatter, start, epsilon)
        ratios[size - 1], kept = best.ratio, np.array(best.kept)
    return ratios


def _improve(scatter: Scatter, start: NDArray[np.intp], epsilon: float) -> Selection:
    kept, ratio, rounds = start, trace_ratio(scatter, start), 0
    while np.isfinite(ratio):
        rounds += 1
        best = np.argsort(-scores(scatter, ratio, 1.0), kind="stable")[: len(start)]
        new_ratio = trace_ratio(scatter, best)
        grown = new_ratio - ratio
        kept, ratio = best, max(ratio, new_ratio)
        if grown <= epsilon * max(1.0, abs(ratio)):
            break
    return Selection(tuple(int(channel) for channel in np.sort(kept)), ratio, rounds)
