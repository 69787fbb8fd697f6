"""95% confidence intervals of shares, and of the difference of two networks' shares on the same images."""

import math
from collections.abc import Callable

__all__ = ["largest_unseen_loss", "paired_difference", "wilson"]

Z = 1.959964
"""Quantile of the standard normal distribution for 95%, two-sided."""
BISECTIONS = 60


def wilson(share: float, images: int) -> tuple[float, float]:
    """Wilson's score interval for a ``share``, 0 to 1, of ``images`` images, at least one."""
    z2 = Z * Z / images
    middle = (share + z2 / 2) / (1 + z2)
    half = Z * math.sqrt(share * (1 - share) / images + z2 / (4 * images)) / (1 + z2)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def paired_difference(gained: int, lost: int, images: int) -> tuple[float, float]:
    """Tango's score interval for the difference of two shares of the same ``images``: (gained - lost) / images.

    ``gained`` images are right by the second network only, ``lost`` by the first only. Unlike an interval based on the
    standard error, it has a nonzero width even if no prediction differs (Tango, Statistics in Medicine 17, 1998).
    """
    found = (gained - lost) / images
    low = _root(lambda delta: _score(gained, lost, images, delta) - Z, -1.0, found)
    high = _root(lambda delta: _score(gained, lost, images, delta) + Z, found, 1.0)
    return low, high


def largest_unseen_loss(images: int) -> float:
    """The upper bound of the lost share, by ``paired_difference``, if none of ``images`` images was lost or gained."""
    return -paired_difference(0, 0, images)[0]


def _score(gained: int, lost: int, images: int, delta: float) -> float:
    """The difference minus ``delta``, in standard errors estimated by maximum likelihood under ``delta``."""
    b = (2 * images - gained + lost) * delta - gained - lost
    c = -lost * delta * (1 - delta)
    q = (math.sqrt(max(0.0, b * b - 8 * images * c)) - b) / (4 * images)
    variance = images * max(0.0, 2 * q + delta * (1 - delta))
    difference = gained - lost - images * delta
    return difference / math.sqrt(variance) if variance else math.copysign(math.inf, difference) if difference else 0.0


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """The root of a ``falling`` function between ``low`` and ``high``."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
