"""Which images layers are solved from, and which are held out to measure the result."""

from collections.abc import Sequence

import torch

__all__ = ["first_images", "split_images"]

HELD_OUT, MOST_HELD_OUT = 0.25, 192
"""Share and largest number of the images that are held out: on the others the loss would be too small."""


def split_images(images: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Batches to solve layers from, and held-out batches of the last quarter at most; of fewer than 4, all twice."""
    total = sum(map(len, images))
    solved = total - min(int(total * HELD_OUT), MOST_HELD_OUT)
    if solved == total:
        return list(images), list(images)
    left, held_out = solved, []
    for batch in images:
        if len(batch) > left:
            held_out.append(batch[left:])
        left = max(0, left - len(batch))
    return first_images(images, solved), held_out


def first_images(images: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
    """The first ``count`` of ``images``, in their batches; nothing is copied."""
    found = []
    for batch in images:
        if count <= 0:
            break
        found.append(batch[:count])
        count -= len(batch)
    return found
