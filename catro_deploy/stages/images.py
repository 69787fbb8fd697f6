"""The images of a run, with labels numbered like the network's classes."""

import numpy as np

from catro_deploy.data import open_dataset, with_class_names
from catro_deploy.data.base import UNKNOWN, Dataset
from catro_deploy.data.labels import relabelled
from catro_deploy.errors import DataError
from catro_deploy.models.classes import named_classes
from catro_deploy.settings import Settings

__all__ = ["classes_with_images", "open_images_of"]


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


def classes_with_images(dataset: Dataset) -> tuple[int, ...]:
    """Indices of the classes that have training images; of all classes if there are no labels."""
    found = np.unique(dataset.train.labels)
    return tuple(range(len(dataset.classes))) if UNKNOWN in found else tuple(map(int, found))
