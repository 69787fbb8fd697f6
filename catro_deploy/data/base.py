"""What every dataset gives: three splits of labelled uint8 images, class names, and named groups of classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Dataset", "MemorySplit", "Split", "Subset"]


class Split(Protocol):
    """N labelled images of one size. Images are decoded when they are asked for."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Class indices, shape (N,)."""

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """The images at ``indices``: uint8, shape (n, channels, height, width), in their order.

        Raises:
            DataError: an image is missing or cannot be decoded; the message names the file.
        """


@dataclass(frozen=True)
class Dataset:
    """Train, validation and test images. Validation is part of the training set; test is for final figures only."""

    name: str
    classes: tuple[str, ...]
    groups: Mapping[str, tuple[int, ...]]
    train: Split
    validation: Split
    test: Split


@dataclass(frozen=True)
class MemorySplit:
    """A split whose images are all in memory: uint8, shape (N, channels, height, width)."""

    pixels: torch.Tensor
    labels: NDArray[np.int64]

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """The images at ``indices``."""
        return self.pixels[torch.as_tensor(np.asarray(indices), dtype=torch.long)]


class Subset:
    """The images of some classes of a split, relabelled 0..k-1 in the order of ``classes``."""

    def __init__(self, split: Split, classes: Sequence[int]) -> None:
        new_label = {old: new for new, old in enumerate(classes)}
        self._split = split
        self._indices = np.flatnonzero(np.isin(split.labels, list(classes)))
        self.labels: NDArray[np.int64] = np.array(
            [new_label[int(label)] for label in split.labels[self._indices]], dtype=np.int64
        )

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """The images at ``indices`` of the subset."""
        return self._split.images(self._indices[np.asarray(indices, dtype=np.int64)])
