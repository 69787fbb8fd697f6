"""The sizes of images as their files have them, read from the files' headers."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from catro_deploy.data.base import Dataset
from catro_deploy.data.files import DECODER_ERRORS, FORMATS, FileSplit
from catro_deploy.records import ImageSizes

__all__ = ["KNOWN_SIDES", "MOST_HEADERS", "image_sizes"]

KNOWN_SIDES = {"gtsrb": 32, "signs": 32}
"""Width and height that these datasets are usually read at."""

MOST_HEADERS = 2000
"""Of more files so many are read, evenly spaced over all splits and classes: rare sizes may be missed."""


def image_sizes(dataset: Dataset) -> ImageSizes | None:
    """Sizes of the image files of all splits; None if the images are not in files, or no header can be read.

    Files whose header cannot be read are left out: they are reported when they are decoded.
    """
    splits = (dataset.train, dataset.validation, dataset.test)
    files = [split for split in splits if isinstance(split, FileSplit)]
    paths = [path for split in files for path in split.paths]
    places = np.linspace(0, len(paths) - 1, min(len(paths), MOST_HEADERS)).round().astype(int)
    found = list(_read(paths[place] for place in places))
    if not found:
        return None
    widths, heights = zip(*found, strict=True)
    return ImageSizes(
        files=len(paths),
        looked_at=len(found),
        different=len(set(found)),
        least=(min(widths), min(heights)),
        most=(max(widths), max(heights)),
        square=all(width == height for width, height in found),
        resize=files[0].form.resize,
    )


def _read(paths: Iterable[Path]) -> Iterable[tuple[int, int]]:
    for path in filter(Path.is_file, paths):  # opening a pipe would wait for its other end
        try:
            with Image.open(path, formats=FORMATS) as file:  # reads no pixels
                yield file.size
        except (*DECODER_ERRORS, Image.DecompressionBombError, Image.DecompressionBombWarning):
            continue
