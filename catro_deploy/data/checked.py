"""Datasets of a user's own factory: what they claim is checked when they are opened, and when images are read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import Dataset, MemorySplit, Split, is_unlabelled
from catro_deploy.data.files import as_files
from catro_deploy.errors import DataError
from catro_deploy.factories import load_factory, users_code
from catro_deploy.settings import DataSettings

if TYPE_CHECKING:
    import torch

__all__ = ["open_factory"]

FORM = (
    "It is called with settings (a catro_deploy.settings.DataSettings), size (height, width) and channels (1 or 3). "
    "It must return a catro_deploy.data.Dataset whose splits give uint8 images (n, channels, height, width); "
    "their labels are integers from 0, or all -1 if they are unknown."
)
SPLITS = ("train", "validation", "test")


def open_factory(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """The dataset of the factory ``settings.name``; the labels of its splits are int64 arrays (N,).

    Raises:
        DataError: the factory fails or returns anything else than it should.
    """
    name, shape = settings.name, (channels, *size)
    with users_code(name, DataError, FORM):
        dataset: Dataset = load_factory(name, DataError)(settings, size, channels)
        _refuse(name, _fault(dataset))
        labels = {part: np.asarray(getattr(dataset, part).labels) for part in SPLITS}
        _refuse(name, _labels_fault(labels, len(dataset.classes)))
        parts = {part: _checked(name, getattr(dataset, part), labels[part], shape) for part in SPLITS}
        for part, split in parts.items():
            _refuse(name, _images_fault(part, split, shape))
    return replace(dataset, train=parts["train"], validation=parts["validation"], test=parts["test"])


def _refuse(name: str, fault: str) -> None:
    """Raise a DataError for the factory ``name`` if there is a ``fault``."""
    if fault:
        raise DataError(f"The factory {name} returned {fault}.", FORM)


class _Checked:
    """The images of ``split``, from the factory ``name``, each of ``shape``, with their ``labels``."""

    def __init__(self, name: str, split: Split, labels: NDArray[np.int64], shape: tuple[int, ...]) -> None:
        self.labels = labels
        self._name, self._split, self._shape = name, split, shape

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> "torch.Tensor":
        """The images at ``indices``.

        Raises:
            DataError: the factory's split fails, or gives anything else.
        """
        with users_code(self._name, DataError, FORM):
            images = self._split.images(indices)
        if wrong := _pixels_fault(images, (len(indices), *self._shape)):
            raise DataError(f"A split of the factory {self._name} gave {wrong}.", FORM)
        return images


def _checked(name: str, split: Split, labels: NDArray[np.generic], shape: tuple[int, ...]) -> Split:
    """``split`` with int64 ``labels``; other modules recognise images in memory and in files by their types."""
    if isinstance(split, MemorySplit):
        return replace(split, labels=labels.astype(np.int64))
    return split if as_files(split) is not None else _Checked(name, split, labels.astype(np.int64), shape)


def _fault(dataset: object) -> str:
    """What is wrong with a factory's result, apart from its splits; empty if it is valid."""
    if not isinstance(dataset, Dataset):
        return f"a {type(dataset).__name__}"
    if not all(isinstance(name, str) for name in dataset.classes):
        return f"the classes {dataset.classes!r}, which are not all text"
    if len(set(dataset.classes)) != len(dataset.classes):
        return "two classes of the same name"
    groups: object = dataset.groups
    return "" if isinstance(groups, Mapping) else f"groups that are a {type(groups).__name__}, not a mapping"


def _labels_fault(labels: Mapping[str, NDArray[np.generic]], classes: int) -> str:
    for part, given in labels.items():
        if given.ndim != 1 or not len(given) or given.dtype.kind not in "iu":
            return f"a {part} split whose labels are {given.dtype} of shape {given.shape}, not integers (N,)"
        found = given.astype(np.int64)
        if not is_unlabelled(found) and (found.min() < 0 or found.max() >= classes):
            return f"a {part} split with labels {found.min()} to {found.max()} for {classes} classes"
    if len({is_unlabelled(given.astype(np.int64)) for given in labels.values()}) > 1:
        return "labels for some splits only"
    return ""


def _images_fault(part: str, split: Split, shape: tuple[int, ...]) -> str:
    """What is wrong with the first and the last image of a split, and with their number."""
    pixels = split.pixels if isinstance(split, MemorySplit) else None
    if pixels is not None and len(pixels) != len(split.labels):
        return f"a {part} split of {len(pixels)} images with {len(split.labels)} labels"
    wrong = _pixels_fault(split.images([0, len(split.labels) - 1]), (2, *shape))
    return f"a {part} split whose first and last image are {wrong}" if wrong else ""


def _pixels_fault(images: object, expected: tuple[int, ...]) -> str:
    import torch

    if not isinstance(images, torch.Tensor):
        return f"a {type(images).__name__}, not a torch.Tensor"
    if images.dtype != torch.uint8 or tuple(images.shape) != expected:
        return f"{images.dtype} {tuple(images.shape)}, not uint8 {expected}"
    return ""
