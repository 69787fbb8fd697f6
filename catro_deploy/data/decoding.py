"""Decode an image file to pixels.

Files are decoded by Pillow, with libjpeg-turbo, since torchvision's and timm's transforms operate on Pillow's images.
With torchvision.io, some pixels of resized images would differ by one level of 255.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from catro_deploy.data.sources import ImageSource, opened
from catro_deploy.errors import DataError

__all__ = ["DECODER_ERRORS", "FORMATS", "Framing", "decode", "draft", "in_threads"]

_In = TypeVar("_In")
_Out = TypeVar("_Out")

FORMATS = ("PNG", "PPM", "JPEG", "BMP", "WEBP", "TIFF")

# Errors that Pillow's decoders raise for incomplete images; UserWarning if warnings are turned into errors.
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

POOLED_IMAGES = 32  # fewer are decoded faster than threads start
MAX_THREADS = 8
BLOCK = 10_000  # each item submitted to the threads takes about 1 KiB


class Framing(Protocol):
    """The part of an image that is read, and its size."""

    @property
    def channels(self) -> int:
        """3 (RGB) or 1 (grey)."""

    def read(self, file: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
        """Frame the image in ``file``, whose header alone has been read so far; ``convert`` decodes it."""


def decode(source: ImageSource, framing: Framing) -> NDArray[np.uint8]:
    """Decode one image file to uint8 (channels, height, width), framed by ``framing``.

    Transparency is dropped and EXIF orientation is not applied, as in torchvision's loaders, with which most
    checkpoints were trained. 16-bit images are scaled to 8 bits.

    Raises:
        DataError: the file is missing, is not a complete image, or is too large to be decoded safely.
    """
    if isinstance(source, Path) and source.exists() and not source.is_file():
        raise DataError(f"The image {source} is not a regular file.", "Replace or remove it.")
    mode = "RGB" if framing.channels == 3 else "L"
    try:
        with Image.open(opened(source), formats=FORMATS) as file:
            image = framing.read(file, lambda image: _eight_bit(image).convert(mode))
    except FileNotFoundError:
        raise DataError(f"The image {source} does not exist.", "Put it back, or unpack the dataset again.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"The image {source} is too large: {error}", "Scale it down first.") from None
    except DECODER_ERRORS as error:
        raise DataError(
            f"The image {source} cannot be read: {error}",
            f"It may be truncated or in a format other than {', '.join(FORMATS)}: replace or remove it, or set "
            "[data] skip_corrupt = true.",
        ) from None
    pixels = np.asarray(image)
    return pixels.transpose(2, 0, 1) if framing.channels == 3 else pixels[None]


def draft(file: Image.Image, size: tuple[float, float]) -> tuple[float, float]:
    """Have a JPEG decoded at 1/2, 1/4 or 1/8 of its size, but not smaller than ``size`` (width, height).

    Returns:
        The factors by which width and height are reduced; both are 1 for other formats.
    """
    width, height = file.size
    if file.format == "JPEG":
        file.draft(file.mode, (max(1, int(np.ceil(size[0]))), max(1, int(np.ceil(size[1])))))
    return width / file.size[0], height / file.size[1]


def _is_worker() -> bool:
    """Whether this process decodes for a DataLoader of PyTorch."""
    from torch.utils.data import get_worker_info

    return get_worker_info() is not None


def in_threads(function: Callable[[_In], _Out], items: Sequence[_In]) -> Iterator[_Out]:
    """Yield ``function`` of each of ``items``, in order; in several threads, except in a worker process."""
    threads = min(MAX_THREADS, len(os.sched_getaffinity(0)))
    if len(items) < POOLED_IMAGES or threads == 1 or _is_worker():
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        for begin in range(0, len(items), BLOCK):
            yield from pool.map(function, items[begin : begin + BLOCK])


def _eight_bit(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers, whose range is unknown")
    if image.mode.startswith("I"):
        # Pillow clips 16-bit values to 255 instead of scaling them; 65535 = 257 * 255.
        wide = np.asarray(image).astype(np.int64).clip(0, 65535)
        return Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA")
    return image
