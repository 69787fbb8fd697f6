"""Normalise pixels for a network: scale to 0..1, subtract the mean, divide by the standard deviation of each channel.

The device's agent, which has only numpy, computes bit-identical values: ``agent.images.normalise``.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch

__all__ = ["constant", "normalise", "scaled", "standardise", "undo_standardise"]

LARGEST = 255


def normalise(pixels: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Convert uint8 ``pixels`` (n, c, h, w) to float32 in 0..1, subtract ``mean`` and divide by ``std`` (c each)."""
    return standardise(scaled(pixels), mean, std)


def scaled(pixels: torch.Tensor) -> torch.Tensor:
    """``pixels`` in 0..255 as float32 in 0..1."""
    return pixels.float() / LARGEST


def standardise(images: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Subtract ``mean`` from ``images`` (n, c, h, w) and divide by ``std`` (c each)."""
    return (images - _by_channel(mean, images)) / _by_channel(std, images)


def undo_standardise(images: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Invert ``standardise``."""
    return images * _by_channel(std, images) + _by_channel(mean, images)


def _by_channel(values: Sequence[float], images: torch.Tensor) -> torch.Tensor:
    return constant(tuple(values), images.dtype, images.device).view(1, -1, 1, 1)


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """``values`` as a tensor, cached: a copy from the host's pageable memory makes a GPU wait. Do not modify it."""
    with torch.inference_mode(mode=False):  # an inference tensor could not be used in training
        return torch.tensor(values, dtype=dtype, device=device)
