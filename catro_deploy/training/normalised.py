"""Labelled batches that are normalised when they are read: as uint8 they take a quarter of the memory."""

from collections.abc import Iterator, Sequence
from typing import overload

import torch

from catro_deploy.data.pixels import normalise
from catro_deploy.graph.fx.features import Labelled

__all__ = ["NormalisedBatches"]


class NormalisedBatches(Sequence[Labelled]):
    """Batches of uint8 images (n, channels, height, width) with their class, read as normalised float32 on ``device``.

    ``mean`` and ``std`` have one value per channel.
    """

    def __init__(
        self,
        pixels: Sequence[Labelled],
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
    ) -> None:
        self.pixels = pixels
        self._mean, self._std = mean, std
        self._device = device

    def __len__(self) -> int:
        return len(self.pixels)

    @overload
    def __getitem__(self, place: int) -> Labelled: ...
    @overload
    def __getitem__(self, place: slice) -> "NormalisedBatches": ...
    def __getitem__(self, place: int | slice) -> "Labelled | NormalisedBatches":
        if isinstance(place, slice):
            return NormalisedBatches(self.pixels[place], self._mean, self._std, self._device)
        images, label = self.pixels[place]
        return self.normalised(images), label

    def __iter__(self) -> Iterator[Labelled]:
        return (self[place] for place in range(len(self)))

    def normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """Any ``pixels``, uint8 (n, channels, height, width), normalised like those of the batches."""
        return normalise(pixels.to(self._device), self._mean, self._std)
