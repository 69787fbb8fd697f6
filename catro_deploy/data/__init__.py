"""Datasets by name: ``gtsrb``, ``imagefolder``, ``images``, ``signs``, ``webdataset``, ``package.module:factory``."""

import dataclasses
from collections.abc import Callable, Sequence

from catro_deploy.data.base import Dataset, MemorySplit, Split, Subset
from catro_deploy.data.checked import open_factory
from catro_deploy.data.classes import resolve_classes, resolve_group
from catro_deploy.data.gtsrb import open_gtsrb
from catro_deploy.data.imagefolder import open_imagefolder
from catro_deploy.data.images import open_images
from catro_deploy.data.signs import open_signs
from catro_deploy.data.webdataset import open_webdataset
from catro_deploy.errors import DataError
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
        dataset = open_factory(settings, size, channels)
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
