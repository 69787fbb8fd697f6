"""Pixels as networks take them: scaled to 0..1, less the mean, over the standard deviation of each channel.

The device's agent, which has numpy alone, computes the same numbers to the bit: ``agent.images.normalise``.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch

__all__ = ["constant", "normalise", "scaled", "standardise", "undo_standardise"]

LARGEST = 255


def normalise(pixels: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Turn uint8 ``pixels`` (n, c, h, w) into float32: scaled to 0..1, less ``mean``, over ``std`` (c each)."""
    return standardise(scaled(pixels), mean, std)


def scaled(pixels: torch.Tensor) -> torch.Tensor:
    """``pixels`` in 0..255 as float32 in 0..1."""
    return pixels.float() / LARGEST


def standardise(images: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """``images`` (n, c, h, w) less ``mean``, over ``std`` (c each)."""
    return (images - _by_channel(mean, images)) / _by_channel(std, images)


def undo_standardise(images: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """The images that ``standardise`` made ``images`` of."""
    return images * _by_channel(std, images) + _by_channel(mean, images)


def _by_channel(values: Sequence[float], images: torch.Tensor) -> torch.Tensor:
    return constant(tuple(values), images.dtype, images.device).view(1, -1, 1, 1)


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """``values`` as a tensor, made once: a copy from the host's pageable memory makes a GPU wait. Do not change it."""
    with torch.inference_mode(mode=False):  # a tensor of inference mode could not be used in training
        return torch.tensor(values, dtype=dtype, device=device)
