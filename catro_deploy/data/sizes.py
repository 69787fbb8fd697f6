"""The sizes of images in their files, read from the files' headers."""

from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import numpy as np
from PIL import Image

from catro_deploy.data.base import Dataset
from catro_deploy.data.decoding import DECODER_ERRORS, FORMATS
from catro_deploy.data.files import FileSplit
from catro_deploy.data.sources import ImageSource, opened
from catro_deploy.errors import DataError
from catro_deploy.records import ImageSizes

__all__ = ["KNOWN_SIDES", "MOST_HEADERS", "image_sizes"]

KNOWN_SIDES = {"gtsrb": 32, "signs": 32}
"""Width and height at which these datasets are usually read."""

MOST_HEADERS = 2000
"""At most this many files are read, evenly spaced over all splits and classes: rare sizes may be missed."""


def image_sizes(dataset: Dataset) -> ImageSizes | None:
    """Sizes of the image files of all splits; None if the images are not in files, or no header can be read.

    Files whose header cannot be read are left out: they are reported when they are decoded.
    """
    splits = (dataset.train, dataset.validation, dataset.test)
    files = [split for split in splits if isinstance(split, FileSplit)]
    ends = list(accumulate(len(split.paths) for split in files))
    count = ends[-1] if ends else 0
    places = np.linspace(0, count - 1, min(count, MOST_HEADERS)).round().astype(int)
    # Indexed from the end of the split that owns the place: of a million files, only these are turned into paths.
    owners = np.searchsorted(ends, places, side="right")
    found = list(_read(files[owner].paths[place - ends[owner]] for owner, place in zip(owners, places, strict=True)))
    if not found:
        return None
    widths, heights = zip(*found, strict=True)
    return ImageSizes(
        files=count,
        looked_at=len(found),
        different=len(set(found)),
        least=(min(widths), min(heights)),
        most=(max(widths), max(heights)),
        square=all(width == height for width, height in found),
        resize=files[0].form.resize,
    )


def _read(sources: Iterable[ImageSource]) -> Iterable[tuple[int, int]]:
    for source in sources:
        if isinstance(source, Path) and not source.is_file():  # opening a pipe would wait for its other end
            continue
        try:
            with Image.open(opened(source), formats=FORMATS) as file:  # reads no pixels
                yield file.size
        except (*DECODER_ERRORS, DataError, Image.DecompressionBombError, Image.DecompressionBombWarning):
            continue
