"""The images of a run, with labels numbered like the network's classes."""

from collections.abc import Sequence

import numpy as np

from catro_deploy.data import open_dataset, resolve_classes, with_class_names
from catro_deploy.data.base import UNKNOWN, Dataset, Subset, is_unlabelled
from catro_deploy.data.labels import relabelled
from catro_deploy.errors import DataError
from catro_deploy.models.classes import named_classes
from catro_deploy.settings import Settings
from catro_deploy.stages.sizes import sized

__all__ = ["classes_with_images", "open_images_of", "require_classes", "wanted_test_images"]

NAMED = 10
"""At most this many classes are named in a message."""


def open_images_of(settings: Settings, size: tuple[int, int]) -> Dataset:
    """The dataset of ``settings``, its images in ``size`` (height, width), with the classes of the network.

    These are the classes that ``[model]`` names, or else the dataset's own. If there are neither, it has none.

    Raises:
        DataError: see ``open_dataset`` and ``relabelled``.
    """
    channels, classes = len(settings.model.mean), named_classes(settings.model)
    if classes is None:
        if settings.data.labels:
            raise DataError(
                "[data] labels map the data's classes to those of the network, which are not known.",
                'Set them: [model] classes = "imagenet1k", a file of names, or their number.',
            )
        return open_dataset(settings.data, size, channels)
    dataset = open_dataset(settings.data.model_copy(update={"groups": {}}), size, channels)
    if dataset.classes:
        dataset = relabelled(dataset, classes.names, classes.ids, settings.data.labels)
    return with_class_names(dataset, classes.names, settings.data)


def require_classes(settings: Settings) -> None:
    """Check that the classes to keep exist, if the images have classes.

    Raises:
        DataError: one does not, or images are missing.
    """
    dataset = open_images_of(settings, sized(settings))
    if dataset.classes:
        resolve_classes(dataset.classes, dataset.groups, settings.prune.classes)


def classes_with_images(dataset: Dataset) -> tuple[int, ...]:
    """Indices of the classes that have training images; of all classes if there are no labels."""
    found = np.unique(dataset.train.labels)
    return tuple(range(len(dataset.classes))) if UNKNOWN in found else tuple(map(int, found))


def wanted_test_images(dataset: Dataset, wanted: Sequence[int], names: Sequence[str]) -> Subset:
    """The test images of the classes with the indices ``wanted``, whose names are ``names``.

    Raises:
        DataError: a class has none.
    """
    test = Subset(dataset.test, wanted)
    if is_unlabelled(test.labels):
        return test
    images = np.bincount(test.labels, minlength=len(names))
    if empty := [name for name, count in zip(names, images, strict=True) if count == 0]:
        more = f" and {len(empty) - NAMED} more" if len(empty) > NAMED else ""
        raise DataError(
            f"There is no test image of: {', '.join(empty[:NAMED])}{more}.",
            "Add some, or prune without these classes (prune.classes): their accuracy cannot be measured.",
        )
    return test
