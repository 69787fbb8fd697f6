"""Which widths to measure: sweeps that find the staircase, the efficient widths, and Latin squares over them.

A width counts the units that a group can lose one by one. If a unit is several channels of a layer (a convolution
group, a normalisation group), multiples of a power of two are still multiples of it in channels, so no step is missed;
a period is then that many times longer in channels.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from catro_deploy.calibration import SIDES

__all__ = ["efficient_widths", "latin_square", "period", "sweep_widths"]

SWEEP = 64
# Times closer than this count as equal.
EQUAL = 0.01


def sweep_widths(width: int, smallest: int) -> tuple[int, ...]:
    """Every width from ``smallest`` to ``width``; for a wide group at most ``SWEEP`` multiples of a power of two.

    Below that power of two, only smaller powers of two and ``smallest`` itself are included.
    """
    step = 1
    while width > SWEEP * step:
        step *= 2
    fractions = (step // 2**k for k in range(1, step.bit_length()))
    widths = {min(smallest, width), width, *range(step, width, step), *fractions}
    return tuple(sorted(w for w in widths if w >= min(smallest, width)))


def efficient_widths(widths: Sequence[int], times: Sequence[float], most: int) -> tuple[int, ...]:
    """At most ``most`` (2 or more) of the swept ``widths`` (ascending) that are efficient: not slower than a wider one.

    ``times`` are those of the layers that the width changes. Of widths with the same time only the widest counts, so
    each efficient width ends a step. The largest width and the narrowest efficient one are always selected. The range
    between them is divided into parts that grow with the width, and the fastest width per channel of each is selected.
    """
    bound = np.inf
    useful: list[tuple[int, float]] = []
    for width, time in reversed(list(zip(widths, times, strict=True))):
        if time < bound * (1 - EQUAL):
            useful.append((width, time))
            bound = time
    useful.reverse()
    if len(useful) <= most:
        return tuple(width for width, _ in useful)
    narrowest, *inner, largest = useful
    chosen = {narrowest[0], largest[0]}
    for low, high in pairwise(np.geomspace(narrowest[0], largest[0], most - 1)):
        part = [(time / width, -width) for width, time in inner if low < width <= high]
        if part:
            chosen.add(-min(part)[1])
    return tuple(sorted(chosen))


def period(widths: Sequence[int], useful: Sequence[int]) -> int:
    """The largest power of two that divides nearly all ``useful`` widths from twice its size on; 1 if there is none.

    If only its multiples were swept, they are no evidence for it.
    """
    for size in (64, 32, 16, 8, 4, 2):
        above = [width for width in useful if width >= 2 * size]
        between = [width for width in widths if width >= 2 * size and width % size]
        if len(above) >= 2 and between and sum(w % size == 0 for w in above) >= 0.9 * len(above):
            return size
    return 1


def latin_square(
    candidates: Mapping[str, Sequence[int]], neighbours: Mapping[str, Sequence[str]], generator: np.random.Generator
) -> list[dict[str, int]]:
    """Networks in which any two neighbouring groups have all pairs of their candidate widths equally often.

    In row i and column j of a square with a prime side p, a group with slope c has candidate (i + c j) mod p: two
    groups with different slopes have every pair exactly once. Fewer candidates than p are repeated cyclically, in a
    random order; the group's slope is random, too.
    """
    most = max(len(widths) for widths in candidates.values())
    side = next(size for size in SIDES if size >= most)
    slopes = _slopes(candidates, neighbours, side, generator)
    deals: dict[str, NDArray[np.int64]] = {
        name: generator.permutation(np.resize(generator.permutation(len(widths)), side))
        for name, widths in candidates.items()
    }
    return [
        {name: widths[deals[name][(i + slopes[name] * j) % side]] for name, widths in candidates.items()}
        for i in range(side)
        for j in range(side)
    ]


def _slopes(
    candidates: Mapping[str, Sequence[int]],
    neighbours: Mapping[str, Sequence[str]],
    side: int,
    generator: np.random.Generator,
) -> dict[str, int]:
    """A slope for each group that differs from those of its neighbours as long as enough slopes are available."""
    slopes: dict[str, int] = {}
    for name in sorted(candidates, key=lambda group: -len(neighbours[group])):
        taken = {slopes[other] for other in neighbours[name] if other in slopes}
        free = [slope for slope in range(side) if slope not in taken]
        slopes[name] = int(generator.choice(free or range(side)))
    return slopes
