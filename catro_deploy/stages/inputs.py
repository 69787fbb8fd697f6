"""A sample of a dataset's images, as the settings say, or prepared in other ways that trainings use."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from catro_deploy.assessment.inputs import Input, evenly_spaced, usual_normalisations
from catro_deploy.data import open_dataset
from catro_deploy.data.base import Split, Subset
from catro_deploy.data.sizes import KNOWN_SIDES, image_sizes
from catro_deploy.errors import DataError
from catro_deploy.models import library_size
from catro_deploy.settings import Settings
from catro_deploy.stages.original import Original
from catro_deploy.training.augment import normalise

__all__ = ["Sample", "other_inputs"]


@dataclass(frozen=True)
class Sample:
    """The images of ``split`` at ``indices``."""

    split: Split
    indices: NDArray[np.int64]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Their classes, shape (n,)."""
        return self.split.labels[self.indices]

    def some(self) -> "Sample":
        """As many of them as suffice to try other inputs."""
        return replace(self, indices=self.indices[evenly_spaced(len(self.indices))])

    def normalised(self, words: str, mean: Sequence[float], std: Sequence[float], *, reverse: bool = False) -> Input:
        """The images as a network gets them; with ``reverse`` RGB becomes BGR."""

        def batch(start: int, stop: int) -> torch.Tensor:
            pixels = self.split.images(self.indices[start:stop])
            return normalise(pixels.flip(1) if reverse else pixels, mean, std)

        return Input(words, len(self.indices), batch)


def other_inputs(original: Original, sample: Sample, settings: Settings) -> Iterator[Input]:
    """Other sizes, then normalisations, then orders of the channels, one changed at a time: the order of likelihood."""
    mean, std = original.mean, original.std
    channels, side, _ = original.input_shape
    for other in _other_sides(original, settings) - {side}:
        try:
            split = Subset(open_dataset(settings.data, (other, other), channels).validation, original.wanted)
        except DataError:  # a factory that has images of one size only
            continue
        yield replace(sample, split=split).normalised(f"[data] size = {other}", mean, std)
    for words, *usual in usual_normalisations(channels):
        yield sample.normalised(words, *usual)
    if channels == 3:
        yield sample.normalised("the channels in the order BGR", mean, std, reverse=True)


def _other_sides(original: Original, settings: Settings) -> set[int]:
    """Sizes that the network may have been trained at: of the images, of the library, half and twice the present."""
    side = original.input_shape[1]
    sizes = image_sizes(original.dataset)
    known = (sizes.side if sizes else None, library_size(original.name), KNOWN_SIDES.get(settings.data.name))
    return {found for found in (*known, 2 * side, side // 2) if found}
