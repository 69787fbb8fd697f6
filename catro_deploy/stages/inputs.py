"""A sample of images, shown to the original as the settings say, or in other ways that trainings use."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from catro_deploy.data import open_dataset
from catro_deploy.data.base import Split, Subset
from catro_deploy.data.sizes import KNOWN_SIDES, image_sizes
from catro_deploy.errors import DataError
from catro_deploy.graph.fx.features import images_at_once
from catro_deploy.models import library_size
from catro_deploy.progress import Silent, Task
from catro_deploy.report.wording import count, percent
from catro_deploy.settings import Settings
from catro_deploy.stages.original import Original
from catro_deploy.statistics.agreement import answers_of
from catro_deploy.statistics.guessing import is_below
from catro_deploy.training.augment import normalise
from catro_deploy.training.device import choose_device

__all__ = ["Sample", "better_input", "logits_of"]

TRIED_IMAGES = 300

NORMALISATIONS = (
    ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # ImageNet's
    ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),  # pixels in 0..1
    ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)),  # pixels in 0..255
)
"""Mean and standard deviation that trainings commonly use."""


@dataclass(frozen=True)
class Sample:
    """The images of ``split`` at ``indices``; with ``reversed_channels`` RGB becomes BGR."""

    split: Split
    indices: NDArray[np.int64]
    reversed_channels: bool = False

    @property
    def labels(self) -> NDArray[np.int64]:
        """Their classes, shape (n,)."""
        return self.split.labels[self.indices]

    def pixels(self, start: int, stop: int) -> torch.Tensor:
        """Some of the images: uint8, shape (n, channels, height, width)."""
        images = self.split.images(self.indices[start:stop])
        return images.flip(1) if self.reversed_channels else images


@dataclass(frozen=True)
class _Input:
    """Another way to make the network's input, in words, of the same images."""

    words: str
    sample: Sample
    mean: tuple[float, ...]
    std: tuple[float, ...]


def logits_of(
    original: Original,
    sample: Sample,
    settings: Settings,
    task: Task,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
) -> NDArray[np.float32]:
    """The original's logits (n, wanted classes) for ``sample``; normalised as the settings say, unless otherwise given.

    Raises:
        DataError: an image is missing or cannot be decoded.
    """
    device, count = choose_device(settings.prune.compute), len(sample.indices)
    at_once = images_at_once(original.model, original.input_shape, settings.prune.batch_size)
    logits = []
    try:
        original.model.to(device)
        with torch.inference_mode():
            for start in range(0, count, at_once):
                pixels = sample.pixels(start, start + at_once).to(device)
                logits.append(
                    original.model(normalise(pixels, mean or original.mean, std or original.std)).float().cpu()
                )
                task.advance(len(pixels))
    finally:
        original.model.cpu()
    return torch.cat(logits).numpy()


def better_input(original: Original, sample: Sample, right: int, settings: Settings) -> str:
    """In which other way the original has far more of ``sample`` right than ``right``, as a sentence; empty if in none.

    Measured on some of the images. Other sizes, normalisations and orders of the channels are tried, one at a time.
    """
    share, best = right / len(sample.indices), ("", 0)
    places = np.linspace(0, len(sample.indices) - 1, min(len(sample.indices), TRIED_IMAGES)).round().astype(np.int64)
    indices = sample.indices[places]
    for tried in _inputs(original, Sample(sample.split, indices), settings):
        found = _right(original, tried, settings)
        if found > best[1]:
            best = (tried.words, found)
    words, most = best
    reached = most / len(indices)
    far_more = reached >= 2 * share or 1 - reached <= (1 - share) / 2
    if not far_more or not is_below(int(share * len(indices)), len(indices), reached):
        return ""
    return f"With {words} it has {percent(reached)} of {count(len(indices))} of them right."


def _right(original: Original, tried: _Input, settings: Settings) -> int:
    try:
        with Silent().task("", 0) as task:
            logits = logits_of(original, tried.sample, settings, task, tried.mean, tried.std)
    except RuntimeError:  # PyTorch's, of a network that takes images of one size only
        return 0
    return int((answers_of(logits) == tried.sample.labels).sum())


def _inputs(original: Original, sample: Sample, settings: Settings) -> Iterator[_Input]:
    """The size first, then the normalisation, then the order of the channels: the order of likelihood."""
    mean, std = original.mean, original.std
    channels, side, _ = original.input_shape
    for other in _other_sides(original, settings) - {side}:
        try:
            split = Subset(open_dataset(settings.data, (other, other), channels).validation, original.wanted)
        except DataError:  # a factory that has images of one size only
            continue
        yield _Input(f"[data] size = {other}", Sample(split, sample.indices), mean, std)
    for common in NORMALISATIONS:
        usual_mean, usual_std = (values[:channels] for values in common)
        written = (f"[{', '.join(f'{value:.4g}' for value in values)}]" for values in (usual_mean, usual_std))
        yield _Input("mean = {} and std = {}".format(*written), sample, usual_mean, usual_std)
    if channels == 3:
        flipped = Sample(sample.split, sample.indices, reversed_channels=True)
        yield _Input("the channels in the order BGR", flipped, mean, std)


def _other_sides(original: Original, settings: Settings) -> set[int]:
    """Sizes that the network may have been trained at: of the images, of the library, half and twice the present."""
    side = original.input_shape[1]
    sizes = image_sizes(original.dataset)
    known = (sizes.side if sizes else None, library_size(original.name), KNOWN_SIDES.get(settings.data.name))
    return {found for found in (*known, 2 * side, side // 2) if found}
