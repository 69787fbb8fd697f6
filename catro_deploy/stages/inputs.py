"""A sample of a dataset's images, preprocessed according to the settings or in other common ways."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from catro_deploy.assessment.inputs import PreparedImages, usual_normalisations
from catro_deploy.data.base import Split, Subset
from catro_deploy.data.pixels import normalise
from catro_deploy.data.sizes import KNOWN_SIDES, image_sizes
from catro_deploy.errors import DataError
from catro_deploy.models import library_size
from catro_deploy.settings import Settings
from catro_deploy.settings.sides import size_text
from catro_deploy.stages.images import open_images_of
from catro_deploy.stages.original import Original

__all__ = ["other_inputs", "prepared"]

Indices = NDArray[np.int64]


def prepared(
    images: Split, words: str, mean: Sequence[float], std: Sequence[float], *, reverse: bool = False
) -> PreparedImages:
    """All ``images`` as a network receives them; with ``reverse``, RGB becomes BGR."""

    def batch(start: int, stop: int) -> torch.Tensor:
        pixels = images.images(np.arange(start, stop))
        return normalise(pixels.flip(1) if reverse else pixels, mean, std)

    return PreparedImages(words, len(images.labels), batch)


def other_inputs(
    original: Original, validation: Subset, places: Indices, settings: Settings
) -> Iterator[PreparedImages]:
    """The images of ``validation`` at ``places``, prepared in other ways, one changed at a time.

    Sizes come first, then normalisations, then the order of the channels, from the most to the least likely cause.
    """
    mean, std, some = original.mean, original.std, validation.at(places)
    channels = original.input_shape[0]
    for other in _other_sizes(original, settings):
        try:
            resized = Subset(open_images_of(_squashed(settings), other).validation, original.wanted)
        except DataError:  # a factory with images of one size only
            continue
        yield prepared(resized.at(places), f"[data] size = {size_text(other)}", mean, std)
    for words, *usual in usual_normalisations(channels):
        yield prepared(some, words, *usual)
    if channels == 3:
        yield prepared(some, "the channels in the order BGR", mean, std, reverse=True)


def _other_sizes(original: Original, settings: Settings) -> set[tuple[int, int]]:
    """Sizes that the network may have been trained at: of the images, of the library, half or twice the current one."""
    _, height, width = original.input_shape
    sizes = image_sizes(original.dataset)
    known = (sizes.side if sizes else None, library_size(original.name), KNOWN_SIDES.get(settings.data.name))
    found = {(side, side) for side in known if side} | {(2 * height, 2 * width), (height // 2, width // 2)}
    return {other for other in found if min(other) > 0} - {(height, width)}


def _squashed(settings: Settings) -> Settings:
    """``settings`` with which images are resized to the size itself."""
    return settings.model_copy(update={"data": settings.data.model_copy(update={"resize": None})})
