"""Calibration images: the same number of each class, drawn from a seed, and identified by their hash."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import MemorySplit, Split, is_unlabelled
from catro_deploy.errors import DataError

__all__ = ["draw_samples", "evenly", "pixels_sha256"]


def pixels_sha256(samples: MemorySplit) -> str:
    """The hash of all pixels of ``samples`` in their order, in hexadecimal."""
    return hashlib.sha256(samples.pixels.contiguous().numpy().tobytes()).hexdigest()


def draw_samples(split: Split, classes: Sequence[str], per_class: int, seed: int) -> MemorySplit:
    """``per_class`` images of each class of ``split``, or all where there are fewer; class by class.

    ``classes`` are the names of its labels 0, 1, ... From images without labels, as many are drawn as for all classes
    together. Equal seeds and equal images give equal samples.

    Raises:
        DataError: a class has no image, or one cannot be read.
    """
    if is_unlabelled(split.labels):
        chosen = evenly(split.labels, per_class * len(classes), seed)
        return MemorySplit(split.images(chosen), split.labels[chosen])
    if missing := [name for label, name in enumerate(classes) if not np.any(split.labels == label)]:
        raise DataError(
            f"There is no calibration image of {', '.join(missing)}.",
            "Values of unseen classes would be clipped: add images, or leave the class out (--classes).",
        )
    chosen = evenly(split.labels, per_class, seed)
    return MemorySplit(split.images(chosen), split.labels[chosen])


def evenly(labels: NDArray[np.int64], per_class: int, seed: int) -> NDArray[np.int64]:
    """Indices of ``per_class`` images of each class in ``labels``, or of all where there are fewer, class by class."""
    generator = np.random.default_rng(seed)
    return np.concatenate(
        [generator.permutation(np.flatnonzero(labels == label))[:per_class] for label in np.unique(labels)]
    )
