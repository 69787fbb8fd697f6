"""German Traffic Sign Recognition Benchmark: 43 classes, 39,209 training and 12,630 test images.

Source: https://benchmark.ini.rub.de, read through ``torchvision.datasets.GTSRB``. The training images are
frames of tracks (one drive past one sign), named ``<track>_<frame>.ppm``.
"""

import errno
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import Dataset
from catro_deploy.data.files import file_splits
from catro_deploy.data.form import image_form
from catro_deploy.data.holdout import hold_out
from catro_deploy.data.intact import intact_files
from catro_deploy.data.listing import taken
from catro_deploy.errors import DataError, StorageError
from catro_deploy.settings import DataSettings

__all__ = ["CLASSES", "GROUPS", "open_gtsrb"]

CLASSES = (
    "speed_limit_20",
    "speed_limit_30",
    "speed_limit_50",
    "speed_limit_60",
    "speed_limit_70",
    "speed_limit_80",
    "end_of_speed_limit_80",
    "speed_limit_100",
    "speed_limit_120",
    "no_passing",
    "no_passing_for_trucks",
    "priority_at_next_intersection",
    "priority_road",
    "yield",
    "stop",
    "no_vehicles",
    "no_trucks",
    "no_entry",
    "general_caution",
    "dangerous_curve_left",
    "dangerous_curve_right",
    "double_curve",
    "bumpy_road",
    "slippery_road",
    "road_narrows_right",
    "road_work",
    "traffic_signals",
    "pedestrians",
    "children_crossing",
    "bicycles_crossing",
    "ice_or_snow",
    "wild_animals_crossing",
    "end_of_all_limits",
    "turn_right_ahead",
    "turn_left_ahead",
    "ahead_only",
    "straight_or_right",
    "straight_or_left",
    "keep_right",
    "keep_left",
    "roundabout",
    "end_of_no_passing",
    "end_of_no_passing_for_trucks",
)

GROUPS = {"speed_limits": tuple(range(1, 9)), "direction_signs": tuple(range(33, 41))}
"""The subtasks of the CATRO paper: 4,260 and 1,770 test images."""

LAYOUT = (
    "Expected files: {root}/gtsrb/GTSRB/Training/00000/*.ppm to 00042/*.ppm, "
    "{root}/gtsrb/GTSRB/Final_Test/Images/*.ppm and {root}/gtsrb/GT-final_test.csv. "
    "Set data.root to the folder that holds gtsrb/, or download it: --download"
)


def open_gtsrb(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Open GTSRB in ``settings.root``; validation consists of whole tracks of the training set.

    Raises:
        DataError: it is missing and is not downloaded, or it is incomplete.
        StorageError: the download could not be written.
    """
    paths, labels, corrupt = intact_files(*_samples(settings, "train"), settings)
    test_paths, test_labels, more = intact_files(*_samples(settings, "test"), settings)
    absent = [name for index, name in enumerate(CLASSES) if index not in labels]
    if absent:
        raise DataError(
            f"GTSRB in {settings.root} is incomplete: no training images of {', '.join(absent)}.",
            f"Delete {settings.root / 'gtsrb'} and unpack or download it again.",
        )
    tracks = [path.stem.partition("_")[0] for path in paths]
    sides = hold_out(labels, tracks, settings.validation, settings.seed)
    train, validation = ((taken(paths, side), labels[side]) for side in sides)
    parts = (train, validation, (test_paths, test_labels))
    training, held_out, testing = file_splits(parts, image_form(settings, size, channels), settings.workers)
    return Dataset("gtsrb", CLASSES, GROUPS, training, held_out, testing, (*corrupt, *more))


def _samples(settings: DataSettings, split: str) -> tuple[list[Path], NDArray[np.int64]]:
    listed = _torchvision_gtsrb(settings, split)._samples
    paths = [Path(path) for path, _ in listed]
    # torchvision numbers the training folders that it finds, so a missing one would shift the labels after it.
    labels = [
        _folder_number(path.parent) if split == "train" else int(label)
        for path, (_, label) in zip(paths, listed, strict=True)
    ]
    if not labels or max(labels) >= len(CLASSES):
        raise DataError(f"GTSRB in {settings.root} does not have the expected images.", _layout(settings))
    return paths, np.array(labels, dtype=np.int64)


def _torchvision_gtsrb(settings: DataSettings, split: str) -> Any:  # noqa: ANN401 - torchvision has no type hints
    from torchvision.datasets import GTSRB  # takes seconds to import

    try:
        return GTSRB(settings.root, split, download=settings.download)
    except URLError as error:
        raise DataError(
            f"GTSRB could not be downloaded: {error.reason}.",
            f"Try again later, or download it yourself. {_layout(settings)}",
        ) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise StorageError(f"GTSRB could not be written to {settings.root}: {error.strerror}.") from error
        raise DataError(f"GTSRB in {settings.root} is incomplete: {error}.", _layout(settings)) from error
    except RuntimeError as error:
        problem = (
            f"GTSRB could not be downloaded: {error}" if settings.download else f"GTSRB is not in {settings.root}."
        )
        raise DataError(problem, _layout(settings)) from error
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{settings.root}/gtsrb/GT-final_test.csv cannot be read: {error}.", _layout(settings)
        ) from error


def _folder_number(folder: Path) -> int:
    return int(folder.name) if folder.name.isdigit() else len(CLASSES)


def _layout(settings: DataSettings) -> str:
    return LAYOUT.format(root=settings.root)
