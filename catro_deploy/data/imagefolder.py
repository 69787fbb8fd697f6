"""Folders of images, one folder per class: ``train/<class>/*``, and ``val/``, ``test/`` or both likewise."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from catro_deploy.data.base import Dataset
from catro_deploy.data.files import LabelledFiles, file_splits
from catro_deploy.data.form import image_form
from catro_deploy.data.holdout import hold_out
from catro_deploy.data.intact import intact_files
from catro_deploy.data.listing import SUFFIXES, image_files, refuse_misnamed, taken
from catro_deploy.data.sources import ImageSource
from catro_deploy.errors import DataError
from catro_deploy.files import require_utf8
from catro_deploy.settings import DataSettings
from catro_deploy.suggestions import did_you_mean

__all__ = ["open_imagefolder"]

LAYOUT = (
    "Expected files: {root}/train/<class>/*.png (or ppm, jpg, bmp, webp, tif) and the same class folders in "
    "{root}/test or {root}/val, or in both. Set data.root to the folder that holds train/."
)


def open_imagefolder(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Open the class folders in ``settings.root``; the classes are the sorted folder names of ``train/``.

    If both ``val/`` and ``test/`` exist, each is used as named. If only one of them exists, it is the test set,
    and the validation images are held out from ``train/``.

    Raises:
        DataError: a folder is missing, empty or named otherwise, or the splits have different classes.
    """
    root = settings.root
    refuse_misnamed(root, ("train", "val", "test"))
    judging = [root / name for name in ("val", "test") if (root / name).is_dir()]
    if not (root / "train").is_dir() or not judging:
        missing = "train/" if judging else "test/ and no val/" if (root / "train").is_dir() else "train/, val/ or test/"
        raise DataError(f"There is no {missing} in {root}.", LAYOUT.format(root=root))
    classes = _class_names(root / "train")
    skipped: list[ImageSource] = []

    def scanned(folder: Path) -> LabelledFiles:
        paths, labels, corrupt = intact_files(*_scan(folder, classes), settings)
        skipped.extend(corrupt)
        return paths, labels

    train, test = scanned(root / "train"), scanned(judging[-1])
    if len(judging) == 2:
        validation = scanned(judging[0])
    else:
        train, validation = _held_out(train, classes, settings)
    training, held_out, testing = file_splits(
        (train, validation, test), image_form(settings, size, channels), settings.workers
    )
    return Dataset("imagefolder", classes, {}, training, held_out, testing, tuple(skipped))


def _class_names(folder: Path) -> tuple[str, ...]:
    names = tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")))
    if not names:
        raise DataError(
            f"There are no class folders in {folder}.",
            "Put the images of each class into a separate folder.",
        )
    for name in names:
        require_utf8(folder / name, DataError)
    return names


def _scan(folder: Path, classes: Sequence[str]) -> LabelledFiles:
    found = _class_names(folder)
    for name in sorted(set(found) - set(classes)):
        meant = did_you_mean(name, classes)
        raise DataError(
            f"{folder} has the class {name!r}, which train/ does not have.",
            f"{meant} Rename the folder." if meant else f"Classes of train/: {', '.join(classes)}.",
        )
    for name in classes:
        if name not in found:
            raise DataError(
                f"{folder} has no folder for the class {name!r} of train/.",
                "Add images of it, or take the class out of train/: a class without images cannot be evaluated.",
            )
    files = image_files(folder, classes)
    counts = {name: len(list(names)) for name, names in groupby(map(_class_of, files.names()))}
    for name in classes:
        if name not in counts:
            raise DataError(
                f"There are no images in {folder / name}.",
                f"Supported suffixes: {', '.join(sorted(SUFFIXES))}. Add images, or take the class out.",
            )
    return files, np.repeat(np.arange(len(classes), dtype=np.int64), [counts[name] for name in classes])


def _class_of(name: str) -> str:
    return name.partition("/")[0]


def _held_out(
    train: LabelledFiles, classes: Sequence[str], settings: DataSettings
) -> tuple[LabelledFiles, LabelledFiles]:
    paths, labels = train
    for name, count in zip(classes, np.bincount(labels, minlength=len(classes)), strict=True):
        if count < 2:
            raise DataError(
                f"{settings.root / 'train' / name} has one image, so none can be held out for validation.",
                "Add images of the class, or give both val/ and test/.",
            )
    sides = hold_out(labels, range(len(labels)), settings.validation, settings.seed)
    kept, held_out = ((taken(paths, side), labels[side]) for side in sides)
    return kept, held_out
