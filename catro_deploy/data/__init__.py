"""Datasets by name: ``gtsrb``, ``imagefolder``, ``images``, ``signs``, ``webdataset``, ``package.module:factory``."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch

from catro_deploy.data.base import Dataset, MemorySplit, Split, Subset, is_unlabelled
from catro_deploy.data.classes import resolve_classes, resolve_group
from catro_deploy.data.gtsrb import open_gtsrb
from catro_deploy.data.imagefolder import open_imagefolder
from catro_deploy.data.images import open_images
from catro_deploy.data.signs import open_signs
from catro_deploy.data.webdataset import open_webdataset
from catro_deploy.errors import DataError
from catro_deploy.factories import load_factory, users_code
from catro_deploy.settings import DataSettings
from catro_deploy.suggestions import did_you_mean

__all__ = [
    "DATASETS",
    "Dataset",
    "MemorySplit",
    "Split",
    "Subset",
    "open_dataset",
    "resolve_classes",
    "with_class_names",
]

Opener = Callable[[DataSettings, tuple[int, int], int], Dataset]

DATASETS: dict[str, Opener] = {
    "gtsrb": open_gtsrb,
    "imagefolder": open_imagefolder,
    "images": open_images,
    "signs": open_signs,
    "webdataset": open_webdataset,
}

FACTORY_FORM = (
    "It is called with settings (a catro_deploy.settings.DataSettings), size (height, width) and channels (1 or 3). "
    "It must return a catro_deploy.data.Dataset whose splits give uint8 images (n, channels, height, width); "
    "their labels are integers from 0, or all -1 if they are unknown."
)


def open_dataset(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Open ``settings.name`` with images of ``size`` (height, width) and 3 (RGB) or 1 (grey) ``channels``.

    ``settings.groups`` are added to the dataset's own groups, and replace those of the same name. They are not added
    if the dataset has no class names.

    Raises:
        DataError: the name is unknown, the images are missing, or a group is empty or names an unknown class.
    """
    if channels not in (1, 3):
        raise DataError(
            f"Images of {channels} channels were requested.",
            "Give model.mean and model.std three values for RGB, or one for grey.",
        )
    if ":" in settings.name:
        dataset = _from_factory(settings, size, channels)
    elif settings.name in DATASETS:
        dataset = DATASETS[settings.name](settings, size, channels)
    else:
        raise DataError(
            f"There is no dataset {settings.name!r}. {did_you_mean(settings.name, DATASETS)}".rstrip(),
            f"Known datasets: {', '.join(DATASETS)} and package.module:factory.",
        )
    return with_class_names(dataset, dataset.classes, settings) if dataset.classes else dataset


def with_class_names(dataset: Dataset, names: Sequence[str], settings: DataSettings) -> Dataset:
    """``dataset`` with the class ``names``, and with the groups of ``settings``.

    Raises:
        DataError: a group is empty or names an unknown class.
    """
    alone = {name: members[0] for name, members in dataset.groups.items() if len(members) == 1}
    own = {
        name: resolve_group(name, [alone.get(str(member), member) for member in members], names)
        for name, members in settings.groups.items()
    }
    return dataclasses.replace(dataset, classes=tuple(names), groups={**dataset.groups, **own})


def _from_factory(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    with users_code(settings.name, DataError, FACTORY_FORM):
        dataset = load_factory(settings.name, DataError)(settings, size, channels)
        fault = _fault(dataset, size, channels)
    if fault:
        raise DataError(f"The factory {settings.name} returned {fault}.", FACTORY_FORM)
    return dataset  # type: ignore[no-any-return] # checked by _fault


def _fault(dataset: object, size: tuple[int, int], channels: int) -> str:
    """What is wrong with a factory's result; empty if it is valid."""
    if not isinstance(dataset, Dataset):
        return f"a {type(dataset).__name__}"
    if len(set(dataset.classes)) != len(dataset.classes):
        return "two classes of the same name"
    expected = (1, channels, *size)
    for name in ("train", "validation", "test"):
        fault = _split_fault(getattr(dataset, name), len(dataset.classes), expected)
        if fault:
            return f"a {name} split {fault}"
    if len({is_unlabelled(split.labels) for split in (dataset.train, dataset.validation, dataset.test)}) > 1:
        return "labels for some splits only"
    return ""


def _split_fault(split: Split, classes: int, expected: tuple[int, ...]) -> str:
    labels = np.asarray(split.labels)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind != "i":
        return f"whose labels are {labels.dtype} of shape {labels.shape}, not integers (N,)"
    if not is_unlabelled(labels) and (labels.min() < 0 or labels.max() >= classes):
        return f"with labels {labels.min()} to {labels.max()} for {classes} classes"
    image: object = split.images([0])
    if not isinstance(image, torch.Tensor):
        return f"whose first image is a {type(image).__name__}, not a torch.Tensor"
    if image.dtype != torch.uint8 or tuple(image.shape) != expected:
        return f"whose first image is {image.dtype} {tuple(image.shape)}, not uint8 {expected}"
    return ""
