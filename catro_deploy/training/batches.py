"""The training images of an epoch; their order and augmentation depend only on the seed and the epoch's number."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from catro_deploy.data.base import MemorySplit, Split
from catro_deploy.data.files import as_files
from catro_deploy.errors import SettingsError
from catro_deploy.settings import OptimiserSettings, batch_size
from catro_deploy.training.augment import KINDS, Share, augment
from catro_deploy.training.compute import Hardware
from catro_deploy.training.photos import mixed, per_image
from catro_deploy.training.reading import read_ahead, read_batches, workers_for
from catro_deploy.training.world import ALONE, World

__all__ = ["MIX", "ORDER", "Epochs", "SplitBatches", "seed_of"]

# Streams of random numbers in an epoch; those of the processes follow.
ORDER, LIGHT = 0, 1
# Streams within ORDER for single images and for mixed batches.
IMAGE, MIX = 1, 2


def seed_of(seed: int, epoch: int, stream: int, *place: int) -> int:
    """A separate seed for each epoch, each ``stream`` of random numbers in it, and each ``place`` in that."""
    return int(np.random.SeedSequence([seed, epoch, stream, *place]).generate_state(1, np.uint64)[0])


class Epochs(Protocol):
    """The source of batches for training, on its device: ``steps`` in each epoch, with ``size`` images in each."""

    steps: int
    size: int

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Images, float32 (n, c, h, w), and labels of epoch ``number`` (1, 2, ...) from step ``first`` on.

        Labels are int64 (n,) or, for mixed images, float32 (n, classes).
        """


class SplitBatches:
    """Batches of ``split``, shuffled, augmented and normalised on the device.

    ``steps`` is the number of batches in an epoch, ``size`` the number of images in each, over all processes. The last
    images of an epoch that do not fill a batch are skipped, different ones in each epoch; a split smaller than one
    batch forms one smaller batch. Several processes get equal parts of each batch, and each reads only its own part.
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
        self._each = per_image(settings)
        self._split: Split = (as_files(split) if self._each.least_area else None) or split
        self._labels = torch.from_numpy(np.asarray(split.labels)).to(hardware.device)
        self._classes = max(0, int(np.max(split.labels, initial=-1)) + 1)
        kind = KINDS[settings.augment]
        self._jitter = replace(kind, saturation=max(kind.saturation, settings.saturation), erase=settings.erase)
        self._settings = settings
        self._mean, self._std = mean, std
        self._hardware = hardware
        count = len(split.labels)
        asked = min(settings.batch_size or batch_size(count), count)
        self.size = asked // world.size * world.size
        if not self.size:
            raise SettingsError(
                f"A batch of {asked} images cannot be shared by {world.size} processes.",
                "Raise batch_size, or start fewer processes with torchrun.",
            )
        self.steps = count // self.size

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Images and labels of epoch ``number`` (1, 2, ...) from step ``first`` on, see ``Epochs``."""
        device, seed = self._hardware.device, self._settings.seed
        shuffling = torch.Generator().manual_seed(seed_of(seed, number, ORDER))
        jittering = torch.Generator(device)
        order = torch.randperm(len(self._labels), generator=shuffling)
        # Moved to the device once: indexing a GPU tensor with host indices would copy and synchronise in every step.
        labels = self._parts(order.to(device))[first:]
        found = self._read(order, number, first)
        for step, (own, pixels) in enumerate(zip(labels, found, strict=True), start=first):
            jittering.manual_seed(seed_of(seed, number, LIGHT, step))
            there = pixels.to(device, non_blocking=True)
            memory_format = self._hardware.memory_format
            images = augment(there, self._jitter, jittering, self._mean, self._std, self._share, memory_format)
            targets = self._labels[own]
            if self._settings.mixup or self._settings.cutmix:
                mixing = seed_of(seed, number, ORDER, MIX, step)
                images, targets = mixed(images, targets, self._classes, self._settings, mixing)
            yield images.contiguous(memory_format=memory_format), targets

    def _parts(self, order: torch.Tensor) -> list[torch.Tensor]:
        """This process's part of each batch."""
        return [self._share.cut(chosen) for chosen in order[: self.steps * self.size].chunk(self.steps)]

    def _read(self, order: torch.Tensor, number: int, first: int) -> Iterator[torch.Tensor]:
        """The pixels of each batch from ``first`` on; images not in memory are decoded while others are trained on."""
        split, pin = self._split, self._hardware.device.type == "cuda"
        if isinstance(split, MemorySplit) and not self._each.active:
            parts = self._parts(order.to(split.pixels.device))[first:]
            return (split.pixels[part] for part in parts)
        indices = [part.numpy() for part in self._parts(order)[first:]]
        if not self._each.active:
            return read_batches(split, indices, pin)
        read = partial(self._varied, number)
        files = as_files(split)
        workers = workers_for(files, len(indices[0])) if files is not None and indices else 0
        if (self._each.magnitude and not workers) or isinstance(split, MemorySplit):
            return map(read, indices)  # RandAugment draws from the global generator, as training does
        return read_ahead(read, indices, workers, pin)

    def _varied(self, number: int, indices: NDArray[np.int64]) -> torch.Tensor:
        def seed(index: int) -> int:
            return seed_of(self._settings.seed, number, ORDER, IMAGE, index)

        return self._each.read(self._split, indices, seed)
