"""The interface of a dataset: three splits of uint8 images, class names, and named groups of classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.sources import ImageSource

if TYPE_CHECKING:
    import torch

__all__ = ["UNKNOWN", "Dataset", "MemorySplit", "Part", "Split", "Subset", "is_unlabelled"]

UNKNOWN = -1
"""The label of an image whose class is unknown."""


class Split(Protocol):
    """N images of one size with their labels. Images are decoded on access."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Class indices, shape (N,); all UNKNOWN in a dataset without labels."""

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> "torch.Tensor":
        """The images at ``indices``: uint8, shape (n, channels, height, width), in their order.

        Raises:
            DataError: an image is missing or cannot be decoded; the message names the file.
        """


@dataclass(frozen=True)
class Dataset:
    """Train, validation and test images. Validation is part of the training set; test is for final figures only.

    ``classes`` may be empty in a dataset without labels: the classes are then those of the network. ``skipped`` lists
    the files that were left out because they cannot be decoded.
    """

    name: str
    classes: tuple[str, ...]
    groups: Mapping[str, tuple[int, ...]]
    train: Split
    validation: Split
    test: Split
    skipped: tuple[ImageSource, ...] = ()

    @property
    def labelled(self) -> bool:
        """Whether the classes of the images are known; accuracy cannot be measured without them."""
        return not is_unlabelled(self.train.labels)


@dataclass(frozen=True)
class MemorySplit:
    """A split whose images are all in memory: uint8, shape (N, channels, height, width)."""

    pixels: "torch.Tensor"
    labels: NDArray[np.int64]

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> "torch.Tensor":
        """The images at ``indices``."""
        import torch

        return self.pixels[torch.as_tensor(np.asarray(indices), dtype=torch.long)]


class Part:
    """The images at ``indices`` of the split ``whole``, with ``labels``."""

    def __init__(self, whole: Split, indices: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        self.whole, self.indices, self.labels = whole, indices, labels

    def at(self, indices: NDArray[np.int64]) -> "Part":
        """The part that holds only the images at ``indices`` of this one, with their labels."""
        return Part(self.whole, self.indices[indices], self.labels[indices])

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> "torch.Tensor":
        """The images at ``indices`` of the part."""
        return self.whole.images(self.indices[np.asarray(indices, dtype=np.int64)])


class Subset(Part):
    """The images of some classes of a split, relabelled 0..k-1 in the order of ``classes``.

    Images without a label may be of any class: all of them are included, and stay UNKNOWN.
    """

    def __init__(self, split: Split, classes: Sequence[int]) -> None:
        new_label = {UNKNOWN: UNKNOWN} | {old: new for new, old in enumerate(classes)}
        indices = np.flatnonzero(np.isin(split.labels, list(new_label)))
        labels = [new_label[int(label)] for label in split.labels[indices]]
        super().__init__(split, indices, np.array(labels, dtype=np.int64))


def is_unlabelled(labels: NDArray[np.int64]) -> bool:
    """Whether there are images, and none of them has a label."""
    return bool(len(labels)) and bool((labels == UNKNOWN).all())
