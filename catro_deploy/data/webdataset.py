"""WebDataset shards as a dataset: ``train-*.tar``, and ``val-*.tar``, ``test-*.tar`` or both, or folders of them.

Images are read in place from the shards, in any order, so they support everything that image files do.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import Dataset
from catro_deploy.data.files import LabelledFiles, file_splits
from catro_deploy.data.form import image_form
from catro_deploy.data.holdout import hold_out
from catro_deploy.data.intact import intact_files
from catro_deploy.data.listing import taken
from catro_deploy.data.shards import read_shards
from catro_deploy.data.sources import ImageSource
from catro_deploy.errors import DataError
from catro_deploy.files import require_regular
from catro_deploy.settings import DataSettings

__all__ = ["open_webdataset", "shards_in"]

NAMES = "classes.txt"
LAYOUT = (
    "Expected files: {root}/train-*.tar and {root}/val-*.tar or {root}/test-*.tar, or folders train/, val/ and test/ "
    "of such files. Set data.root to the folder that holds them."
)


def shards_in(root: Path, split: str) -> list[Path]:
    """The tar files of a ``split`` (train, val or test) in ``root``, sorted."""
    return [*sorted(root.glob(f"{split}*.tar")), *sorted((root / split).glob("*.tar"))]


def open_webdataset(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Open the shards in ``settings.root``; classes are those of the training images, in the order of their indices.

    Their names are the lines of ``classes.txt`` in the same folder; without it they are the indices. If both ``val``
    and ``test`` exist, each is used as named. If only one of them exists, it is the test set, and the validation images
    are held out from ``train``.

    Raises:
        DataError: shards are missing, damaged or without labels, or the splits have different classes.
    """
    root = settings.root
    shards = {name: shards_in(root, name) for name in ("train", "val", "test")}
    judging = [name for name in ("val", "test") if shards[name]]
    if not shards["train"] or not judging:
        missing = "val*.tar or test*.tar" if shards["train"] else "train*.tar"
        raise DataError(f"There is no {missing} in {root}.", LAYOUT.format(root=root))
    skipped: list[ImageSource] = []

    def scanned(name: str) -> LabelledFiles:
        images, labels, corrupt = intact_files(*_images(root, name, shards[name]), settings)
        skipped.extend(corrupt)
        return images, labels

    train, test = scanned("train"), scanned(judging[-1])
    classes = np.unique(train[1])
    validation = scanned("val") if len(judging) == 2 else None
    if validation is None:
        train, validation = _held_out(train, settings)
    parts = [(images, _places(labels, classes, root)) for images, labels in (train, validation, test)]
    training, choosing, testing = file_splits(parts, image_form(settings, size, channels), settings.workers)
    names = _class_names(root / NAMES, classes)
    return Dataset("webdataset", names, {}, training, choosing, testing, tuple(skipped))


def _images(root: Path, name: str, shards: Sequence[Path]) -> LabelledFiles:
    images, labels = read_shards(shards)
    if not len(images):
        raise DataError(f"There are no images in the shards {name}*.tar of {root}.", LAYOUT.format(root=root))
    return images, labels


def _places(labels: NDArray[np.int64], classes: NDArray[np.int64], root: Path) -> NDArray[np.int64]:
    """The position of each label among ``classes``, which are sorted."""
    if len(unknown := np.setdiff1d(labels, classes)):
        raise DataError(
            f"The val or test shards in {root} have images of class {unknown[0]}, but the train shards have none.",
            "Add some to train, or take the class out.",
        )
    return np.searchsorted(classes, labels)


def _held_out(train: LabelledFiles, settings: DataSettings) -> tuple[LabelledFiles, LabelledFiles]:
    images, labels = train
    alone, counts = np.unique(labels, return_counts=True)
    if counts.min() < 2:
        raise DataError(
            f"Class {alone[counts.argmin()]} has one training image in {settings.root}, so none can be held out for "
            "validation.",
            "Add images of the class, or give both val*.tar and test*.tar.",
        )
    sides = hold_out(labels, range(len(labels)), settings.validation, settings.seed)
    kept, chosen = ((taken(images, side), labels[side]) for side in sides)
    return kept, chosen


def _class_names(path: Path, classes: NDArray[np.int64]) -> tuple[str, ...]:
    """The names of ``classes`` from the lines of the file ``path``; their indices if it does not exist."""
    try:
        require_regular(path)
        names = [line.strip() for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return tuple(map(str, classes.tolist()))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", "It needs the name of a class on each line.") from error
    if int(classes[-1]) >= len(names):
        raise DataError(
            f"{path} names {len(names)} classes; there are images of class {classes[-1]}, counted from 0.",
            "Give a line for each class.",
        )
    found = tuple(names[label] for label in classes)
    twice = [name for name, count in Counter(found).items() if count > 1]
    if not all(found):
        raise DataError(f"{path} has no name for class {classes[found.index('')]}.", "Give each class a name.")
    if twice:
        raise DataError(f"{path} has the name {twice[0]} twice.", "Give each class its own name.")
    return found
