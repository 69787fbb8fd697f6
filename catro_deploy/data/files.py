"""Images in files: decoded when asked for, brought to one size and mode, remembered if they fit."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from catro_deploy.data.form import ImageForm
from catro_deploy.errors import DataError

__all__ = [
    "FORMATS",
    "REMEMBERED_BYTES",
    "SUFFIXES",
    "FileSplit",
    "LabelledFiles",
    "decode",
    "file_splits",
    "image_files",
]

FORMATS = ("PNG", "PPM", "JPEG", "BMP", "WEBP", "TIFF")
SUFFIXES = frozenset({".png", ".ppm", ".pgm", ".pbm", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"})

REMEMBERED_BYTES = 2 * 1024**3
"""A dataset that decodes to no more than this stays in memory; a larger one is decoded anew each time."""

POOLED_IMAGES = 32  # fewer are decoded sooner than threads are started
MAX_THREADS = 8

# What Pillow's decoders raise on bytes that are not a whole image; a UserWarning where warnings are errors.
DECODER_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    MemoryError,
    UserWarning,
)

LabelledFiles = tuple[list[Path], NDArray[np.int64]]
"""Image files and their class indices, shape (n,)."""


class FileSplit:
    """Labelled image files. ``images`` may be called by several threads at a time."""

    def __init__(
        self,
        paths: Sequence[Path],
        labels: NDArray[np.int64],
        form: ImageForm,
        *,
        remember: bool,
    ) -> None:
        self.paths = tuple(paths)
        self.labels = labels
        self.form = form
        # The system gives memory to pages of the array as they are written, so unread images cost none.
        self._remembered = np.empty(self._shape(len(paths)), np.uint8) if remember else None
        self._decoded = np.zeros(len(paths), dtype=bool)

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """The images at ``indices``: uint8, shape (n, channels, height, width).

        Raises:
            DataError: a file is missing or is not a whole image; the message names it.
        """
        wanted = np.asarray(indices, dtype=np.int64)
        if self._remembered is None:
            return torch.from_numpy(self._decode(wanted))
        missing = np.unique(wanted[~self._decoded[wanted]])
        if len(missing):
            self._remembered[missing] = self._decode(missing)
            self._decoded[missing] = True
        return torch.from_numpy(self._remembered[wanted])

    def _shape(self, images: int) -> tuple[int, int, int, int]:
        return images, self.form.channels, *self.form.size

    def _decode(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        pixels = np.empty(self._shape(len(indices)), np.uint8)
        paths = [self.paths[index] for index in indices]
        for place, image in enumerate(_decode_all(paths, self.form)):
            pixels[place] = image
        return pixels


def image_files(folder: Path) -> list[Path]:
    """All image files below ``folder``, by their suffix, sorted; nothing whose name begins with a dot."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def file_splits(parts: Sequence[tuple[Sequence[Path], NDArray[np.int64]]], form: ImageForm) -> tuple[FileSplit, ...]:
    """A FileSplit for each (paths, labels), remembered if all of them together fit into REMEMBERED_BYTES."""
    total_bytes = sum(len(paths) for paths, _ in parts) * form.channels * form.size[0] * form.size[1]
    remember = total_bytes <= REMEMBERED_BYTES
    return tuple(FileSplit(paths, labels, form, remember=remember) for paths, labels in parts)


def _decode_all(paths: Sequence[Path], form: ImageForm) -> Iterator[NDArray[np.uint8]]:
    threads = min(MAX_THREADS, len(os.sched_getaffinity(0)))
    if len(paths) < POOLED_IMAGES or threads == 1:
        yield from (decode(path, form) for path in paths)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda path: decode(path, form), paths)


def decode(path: Path, form: ImageForm) -> NDArray[np.uint8]:
    """One image file as uint8 (channels, height, width), resized and cropped to ``form``.

    Transparency is dropped and EXIF orientation is not applied, as in torchvision's loaders, with which most
    checkpoints were trained. 16 bits are scaled to 8.

    Raises:
        DataError: the file is missing, is not a whole image, or is too large to be decoded safely.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"The image {path} is not a regular file.", "Replace or remove it.")
    try:
        with Image.open(path, formats=FORMATS) as file:
            image = _eight_bit(file).convert("RGB" if form.channels == 3 else "L")
    except FileNotFoundError:
        raise DataError(f"The image {path} is not there.", "Put it back, or unpack the dataset again.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"The image {path} is too large: {error}", "Scale it down first.") from None
    except DECODER_ERRORS as error:
        raise DataError(
            f"The image {path} cannot be read: {error}",
            f"It may be truncated or of another format than {', '.join(FORMATS)}: replace or remove it.",
        ) from None
    pixels = np.asarray(form.applied(image))
    return pixels.transpose(2, 0, 1) if form.channels == 3 else pixels[None]


def _eight_bit(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers, whose range is unknown")
    if image.mode.startswith("I"):
        # Pillow clips 16 bits to 255 where it should scale; 65535 = 257 * 255.
        wide = np.asarray(image).astype(np.int64).clip(0, 65535)
        return Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA")
    return image
