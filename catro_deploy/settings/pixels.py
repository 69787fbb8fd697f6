"""Check that mean and standard deviation are for pixels in 0..1; many models state them for pixels in 0..255."""

import math
from collections.abc import Sequence

__all__ = ["SMALLEST_STD", "require_normalisation", "require_unit_pixels"]

LARGEST_PIXEL = 255
SMALLEST_STD = 1e-6
"""For pixels in 0..1, where one step of 8 bits is 0.0039. Divided by far less, pixels overflow in the first layer."""


def require_normalisation(mean: Sequence[float], std: Sequence[float]) -> None:
    """Reject values by which pixels in 0..1 cannot be normalised.

    Raises:
        ValueError: a value is not finite or above 1, or one of ``std`` is less than ``SMALLEST_STD``.
    """
    if not all(map(math.isfinite, (*mean, *std))):
        raise ValueError(f"mean = {list(mean)} and std = {list(std)} are not all finite")
    if min(std) < SMALLEST_STD:
        raise ValueError(f"std = {list(std)} is not everywhere at least {SMALLEST_STD:g}")
    require_unit_pixels(mean, std)


def require_unit_pixels(mean: Sequence[float], std: Sequence[float]) -> None:
    """Reject values above 1; the error gives them for pixels in 0..1.

    Values above 1 are converted, and so is a std of 1 together with such a mean, since it scales nothing. A mean of at
    most 1, or a std below 1, is already for pixels in 0..1.

    Raises:
        ValueError: a value is above 1.
    """
    if max(*mean, *std) <= 1:
        return
    converted = [list(mean) if max(mean) <= 1 else _divided(mean), list(std) if max(std) < 1 else _divided(std)]
    raise ValueError(
        f"mean = {list(mean)} and std = {list(std)} are for pixels in 0..255, but here pixels are in 0..1. "
        f"Write mean = {converted[0]} and std = {converted[1]}"
    )


def _divided(values: Sequence[float]) -> list[float]:
    return [float(f"{value / LARGEST_PIXEL:.4g}") for value in values]
