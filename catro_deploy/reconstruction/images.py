"""Which images layers are solved from, and which are held out to measure the result."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import overload

import torch

__all__ = ["MixedImages", "first_images", "image_count", "split_images"]

HELD_OUT, MOST_HELD_OUT = 0.25, 192
"""Share and maximum number of images that are held out: on the others the loss would be too low."""


class MixedImages(Sequence[torch.Tensor]):
    """Batches of some of ``images`` (channels, height, width), each assembled when it is read.

    The images are thus in memory only once, even if something else holds them. ``order`` has the indices of the images
    in reading order, ``sizes`` the number of images in each batch; ``finish`` turns a batch into the network's input.
    """

    def __init__(
        self,
        images: Sequence[torch.Tensor],
        order: Sequence[int],
        sizes: Sequence[int],
        finish: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self.sizes = sizes
        self._images, self._order, self._finish = images, order, finish
        self._bounds = list(pairwise(accumulate(sizes, initial=0)))

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, place: int) -> torch.Tensor: ...
    @overload
    def __getitem__(self, place: slice) -> list[torch.Tensor]: ...
    def __getitem__(self, place: int | slice) -> torch.Tensor | list[torch.Tensor]:
        if isinstance(place, slice):
            return [self[batch] for batch in range(len(self))[place]]
        start, stop = self._bounds[place]
        return self._finish(torch.stack([self._images[index] for index in self._order[start:stop]]))

    def part(self, start: int, stop: int) -> "MixedImages":
        """The images from ``start`` to ``stop``, in their batches."""
        sizes = [min(stop, last) - max(start, first) for first, last in self._bounds]
        return MixedImages(self._images, self._order[start:stop], [n for n in sizes if n > 0], self._finish)


def split_images(images: Sequence[torch.Tensor]) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """Batches to solve layers from, and held-out batches of at most the last quarter; below 4 images, both have all."""
    total = image_count(images)
    solved = total - min(int(total * HELD_OUT), MOST_HELD_OUT)
    if solved == total:
        return images, images
    return _part(images, 0, solved), _part(images, solved, total)


def image_count(images: Sequence[torch.Tensor]) -> int:
    """The number of images in batches, without assembling any of them."""
    return sum(images.sizes if isinstance(images, MixedImages) else map(len, images))


def first_images(images: Sequence[torch.Tensor], count: int) -> Sequence[torch.Tensor]:
    """The first ``count`` of ``images``, in their batches; nothing is copied."""
    return _part(images, 0, count)


def _part(images: Sequence[torch.Tensor], start: int, stop: int) -> Sequence[torch.Tensor]:
    if isinstance(images, MixedImages):
        return images.part(start, stop)
    ends = list(accumulate(map(len, images)))
    cut = [
        batch[max(0, start - end + len(batch)) : max(0, stop - end + len(batch))]
        for batch, end in zip(images, ends, strict=True)
    ]
    return [batch for batch in cut if len(batch)]
