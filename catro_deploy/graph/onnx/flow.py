"""What is left of the tensors and constants of an ONNX network when channels are removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Flow", "Kept", "UnknownError", "cut_constant_", "is_whole", "retarget_", "sizes_of", "whole"]

Kept = tuple[NDArray[np.bool_], ...]
"""For each axis of one tensor, which of its indices at full width are left."""


@dataclass
class Flow:
    """The tensors of a network, and its changed constants: what is left of float constants, new values of others.

    ``full`` holds the shape of every tensor at full width, with an unknown batch size as 1.
    """

    arrays: Mapping[str, NDArray[Any]]
    full: Mapping[str, tuple[int, ...]]
    kept: dict[str, Kept] = field(default_factory=dict)
    cut: dict[str, Kept] = field(default_factory=dict)
    values: dict[str, NDArray[Any]] = field(default_factory=dict)


class UnknownError(Exception):
    """The output is unknown. It is caught: tensors from which nothing is removed need no rule."""


def whole(shape: Sequence[int]) -> Kept:
    """A tensor of ``shape`` from which nothing is removed."""
    return tuple(np.ones(size, bool) for size in shape)


def is_whole(kept: Kept) -> bool:
    """Whether nothing is removed."""
    return all(mask.all() for mask in kept)


def cut_constant_(name: str, kept: Sequence[NDArray[np.bool_]], flow: Flow) -> None:
    """Record how to cut a constant that is broadcast with a tensor whose last axes are ``kept``."""
    array = flow.arrays[name]
    masks = [mask if size > 1 else np.ones(1, bool) for size, mask in zip(array.shape, kept, strict=True)]
    if array.dtype == np.float32 and array.size > 1:
        flow.cut[name] = tuple(masks)
    elif not is_whole(tuple(masks)):
        flow.values[name] = array[np.ix_(*masks)]


def retarget_(name: str, kept: Kept, flow: Flow) -> None:
    """Record the new value of a constant that is the output's shape; 0 and -1 leave an axis to the runtime."""
    target = flow.arrays[name]
    if len(target) != len(kept):
        raise UnknownError
    flow.values[name] = np.where(target > 0, sizes_of(kept), target).astype(target.dtype)


def sizes_of(kept: Sequence[NDArray[np.bool_]]) -> tuple[int, ...]:
    """How many indices are left on each axis."""
    return tuple(int(mask.sum()) for mask in kept)
