"""A folder of images without labels, such as those taken by a device's own camera."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from catro_deploy.data.base import UNKNOWN, Dataset
from catro_deploy.data.files import file_splits
from catro_deploy.data.form import image_form
from catro_deploy.data.holdout import hold_out
from catro_deploy.data.intact import intact_files
from catro_deploy.data.listing import SUFFIXES, image_files, refuse_misnamed, taken
from catro_deploy.errors import DataError
from catro_deploy.settings import DataSettings
from catro_deploy.units import counted

__all__ = ["open_images"]

HELD_OUT = {"test": "verification", "val": "choices"}
"""Folders whose images are held out, and their purpose."""
FEWEST = 2


def open_images(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Open all images below ``settings.root``, in any subfolder; their labels are UNKNOWN.

    Images below ``test/`` are the test images, those below ``val/`` the validation images. If one of these folders is
    missing, the share ``settings.validation`` of the other images is drawn instead. The dataset has no class names: the
    classes are those of the network.

    Raises:
        DataError: the folder is missing, holds too few images, or names its held-out images otherwise.
    """
    root = settings.root
    if not root.is_dir():
        raise DataError(f"There is no folder {root}.", "Set data.root to the folder that holds the images.")
    refuse_misnamed(root, HELD_OUT)
    listed = image_files(root)
    found, _, skipped = intact_files(listed, np.full(len(listed), UNKNOWN, np.int64), settings)
    tops = np.array([path.relative_to(root).parts[0] for path in found], object)
    held_out = {name: taken(found, np.flatnonzero(tops == name)) for name in HELD_OUT}
    rest = taken(found, np.flatnonzero(~np.isin(tops, list(HELD_OUT))))
    drawn = [name for name, paths in held_out.items() if not paths]
    if len(rest) < FEWEST + len(drawn):
        raise DataError(_too_few(root, rest, drawn), f"Supported suffixes: {', '.join(sorted(SUFFIXES))}.")
    for name in drawn:
        rest, held_out[name] = _held_out(rest, settings)
    parts = [(paths, np.full(len(paths), UNKNOWN, np.int64)) for paths in (rest, held_out["val"], held_out["test"])]
    training, validation, testing = file_splits(parts, image_form(settings, size, channels), settings.workers)
    return Dataset("images", (), {}, training, validation, testing, tuple(skipped))


def _held_out(paths: Sequence[Path], settings: DataSettings) -> tuple[Sequence[Path], Sequence[Path]]:
    alike = np.zeros(len(paths), np.int64)
    sides = hold_out(alike, range(len(paths)), settings.validation, settings.seed)
    kept, chosen = (taken(paths, side) for side in sides)
    return kept, chosen


def _too_few(root: Path, rest: Sequence[Path], drawn: Sequence[str]) -> str:
    purposes = "".join(f" and 1 for {HELD_OUT[name]} ({root / name} has none)" for name in drawn)
    return f"{root} has {counted(len(rest), 'image')}; at least {FEWEST} are needed for pruning{purposes}."
