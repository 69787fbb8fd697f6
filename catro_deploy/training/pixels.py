"""Keep decoded images between epochs."""

import numpy as np
import torch

from catro_deploy.data.base import MemorySplit, Split
from catro_deploy.progress import Progress

__all__ = ["LARGEST_BYTES", "decode_once"]

LARGEST_BYTES = 4 * 2**30
READ_AT_ONCE = 512


def decode_once(
    split: Split, device: torch.device, progress: Progress, title: str, largest_bytes: int = LARGEST_BYTES
) -> Split:
    """Decode all images once into one uint8 tensor on ``device``, if that takes at most ``largest_bytes``.

    It takes N * channels * height * width bytes: 39,209 images of 3 x 32 x 32 take 115 MiB. A larger split is returned
    unchanged, and its images are decoded again in each epoch.

    Raises:
        DataError: an image is missing or cannot be decoded.
    """
    count = len(split.labels)
    if count == 0:
        return split
    first = split.images([0])
    if first.numel() * count > largest_bytes:
        return split
    pixels = torch.empty((count, *first.shape[1:]), dtype=torch.uint8)
    with progress.task(title, count) as task:
        for start in range(0, count, READ_AT_ONCE):
            indices = np.arange(start, min(start + READ_AT_ONCE, count))
            pixels[start : start + len(indices)] = split.images(indices)
            task.advance(len(indices))
    return MemorySplit(pixels.to(device), split.labels)
