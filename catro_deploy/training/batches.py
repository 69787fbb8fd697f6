"""The training images of an epoch, ordered and augmented by the seed and the epoch's number alone."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from catro_deploy.data.base import MemorySplit, Split
from catro_deploy.errors import SettingsError
from catro_deploy.settings import OptimiserSettings, batch_size
from catro_deploy.training.augment import KINDS, Share, augment
from catro_deploy.training.compute import Hardware
from catro_deploy.training.world import ALONE, World

__all__ = ["Epochs", "SplitBatches", "seed_of"]


def seed_of(seed: int, epoch: int, stream: int, step: int = 0) -> int:
    """A seed of its own for each epoch, each ``stream`` of random numbers in it, and each ``step`` of that."""
    return int(np.random.SeedSequence([seed, epoch, stream, step]).generate_state(1, np.uint64)[0])


class Epochs(Protocol):
    """Where a training gets its batches from: ``steps`` of them in each epoch, each of ``size``, on its device."""

    steps: int
    size: int

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Images, float32 (n, c, h, w), and labels, int64 (n,), of epoch ``number`` (1, 2, ...) from ``first`` on."""


class SplitBatches:
    """Batches of ``split``, shuffled, augmented and normalised on the device.

    ``steps`` is how many an epoch has, ``size`` the images of each, of all processes together. Images that do not fill
    a batch are left out, other ones in each epoch; only a split smaller than one batch is a batch of its own. Several
    processes get equal parts of each batch.
    """

    def __init__(
        self,
        split: Split,
        settings: OptimiserSettings,
        mean: Sequence[float],
        std: Sequence[float],
        hardware: Hardware,
        world: World = ALONE,
    ) -> None:
        self._share = Share(world.rank, world.size)
        self._split = split
        self._labels = torch.from_numpy(np.asarray(split.labels)).to(hardware.device)
        self._jitter = replace(KINDS[settings.augment], saturation=settings.saturation, erase=settings.erase)
        self._seed = settings.seed
        self._mean, self._std = mean, std
        self._hardware = hardware
        count = len(split.labels)
        asked = min(settings.batch_size or batch_size(count), count)
        self.size = asked // world.size * world.size
        if not self.size:
            raise SettingsError(
                f"A batch of {asked} images cannot be shared by {world.size} processes.",
                "Raise batch_size, or start fewer with torchrun.",
            )
        self.steps = count // self.size

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Images, float32 (n, c, h, w), and labels, int64 (n,), of epoch ``number`` (1, 2, ...) from ``first`` on."""
        device = self._hardware.device
        shuffling = torch.Generator().manual_seed(seed_of(self._seed, number, 0))
        jittering = torch.Generator(device)
        order = torch.randperm(len(self._labels), generator=shuffling)
        # To the device once: indexing a GPU's tensor by the host's indices would copy, and wait, in every step.
        labels = self._parts(order.to(device))[first:]
        for step, (own, found) in enumerate(zip(labels, self._read(order, first), strict=True), start=first):
            jittering.manual_seed(seed_of(self._seed, number, 1, step))
            pixels = found.to(device, non_blocking=True)
            images = augment(pixels, self._jitter, jittering, self._mean, self._std, self._share)
            yield images.contiguous(memory_format=self._hardware.memory_format), self._labels[own]

    def _parts(self, order: torch.Tensor) -> list[torch.Tensor]:
        """This process's part of each batch."""
        return [self._share.cut(chosen) for chosen in order[: self.steps * self.size].chunk(self.steps)]

    def _read(self, order: torch.Tensor, first: int) -> Iterator[torch.Tensor]:
        """The pixels of each batch from ``first`` on; what is not in memory is decoded while the one before trains."""
        if isinstance(self._split, MemorySplit):
            pixels = self._split.pixels
            yield from (pixels[part] for part in self._parts(order.to(pixels.device))[first:])
            return
        parts = self._parts(order)[first:]
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._decode, parts[0])
            for part in parts[1:]:
                found, coming = coming.result(), reader.submit(self._decode, part)
                yield found
            yield coming.result()

    def _decode(self, part: torch.Tensor) -> torch.Tensor:
        pixels = self._split.images(part.numpy())
        return pixels.pin_memory() if self._hardware.device.type == "cuda" else pixels
