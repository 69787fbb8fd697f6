"""Check that mean and standard deviation are for pixels in 0..1; many models state them for pixels in 0..255."""

from collections.abc import Sequence

__all__ = ["require_unit_pixels"]

LARGEST_PIXEL = 255


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
