"""Synthetic traffic signs, drawn by the package: sixteen classes, like 32x32 crops from a dashboard camera.

Nothing is downloaded. Image i of a split depends on (seed, split, i) alone. The images are kept in
``<data.root>/signs`` and drawn again if the files are damaged or of another version.
"""

import zipfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from catro_deploy.data.base import Dataset, MemorySplit
from catro_deploy.data.holdout import hold_out
from catro_deploy.data.signs_drawing import CLASSES, GROUPS, draw_face
from catro_deploy.data.signs_scene import photograph
from catro_deploy.errors import StorageError
from catro_deploy.files import replacing, require_regular
from catro_deploy.settings import DataSettings

if TYPE_CHECKING:
    import torch

__all__ = ["IMAGES_PER_CLASS", "draw_split", "open_signs"]

IMAGES_PER_CLASS = {"train": 400, "test": 100}
VERSION = 1  # increase it when the drawing changes: older files are then drawn again

THREADS = 2

Pixels = NDArray[np.uint8]


def open_signs(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Draw the signs at ``size``, or read them if they were drawn before; validation is part of the training set."""
    drawn = _drawn_before(settings, size)
    train, test = (MemorySplit(_tensor(drawn[name], channels), _labels(len(drawn[name]))) for name in IMAGES_PER_CLASS)
    sides = hold_out(train.labels, range(len(train.labels)), settings.validation, settings.seed)
    kept, validation = (MemorySplit(train.images(side), train.labels[side]) for side in sides)
    return Dataset("signs", CLASSES, GROUPS, kept, validation, test)


def draw_split(split: str, count: int, size: tuple[int, int], seed: int) -> Pixels:
    """Images 0 to ``count`` - 1 of ``split``: uint8 (count, height, width, 3). Image i shows class i % 16."""
    supersampling = max(1, min(4, 256 // max(size)))
    faces = [draw_face(name, min(size) * supersampling) for name in CLASSES]
    stream = list(IMAGES_PER_CLASS).index(split)
    images = np.empty((count, *size, 3), np.uint8)

    def draw(i: int) -> None:
        rng = np.random.default_rng([seed, stream, i])
        images[i] = photograph(faces[i % len(CLASSES)], size, supersampling, rng)

    with ThreadPoolExecutor(THREADS) as pool:  # Pillow releases the GIL while it computes
        deque(pool.map(draw, range(count)), maxlen=0)
    return images


def _labels(count: int) -> NDArray[np.int64]:
    return np.arange(count, dtype=np.int64) % len(CLASSES)


def _tensor(images: Pixels, channels: int) -> "torch.Tensor":
    import torch

    if channels == 1:
        images = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])[..., None]
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def _drawn_before(settings: DataSettings, size: tuple[int, int]) -> dict[str, Pixels]:
    key = f"version {VERSION}, seed {settings.seed}, {size[0]}x{size[1]}, {IMAGES_PER_CLASS}"
    path = settings.root / "signs" / f"{size[0]}x{size[1]}_seed{settings.seed}.npz"
    images = _read(path, key)
    if images is None:
        images = {
            name: draw_split(name, per_class * len(CLASSES), size, settings.seed)
            for name, per_class in IMAGES_PER_CLASS.items()
        }
        with suppress(StorageError):  # the file only saves time
            _write(path, key, images)
    return images


def _read(path: Path, key: str) -> dict[str, Pixels] | None:
    """The images in ``path`` drawn under ``key``; None if the file is missing, is damaged or has another key."""
    try:
        require_regular(path)
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if str(archive["key"]) == key:
                return {name: archive[name] for name in IMAGES_PER_CLASS}
    except (OSError, ValueError, LookupError, EOFError, zipfile.BadZipFile):
        pass
    return None


def _write(path: Path, key: str, images: dict[str, Pixels]) -> None:
    arrays: dict[str, Any] = {"key": np.array(key), **images}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
