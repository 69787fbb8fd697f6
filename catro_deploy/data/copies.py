"""Find test images that are also in another split: files of the same content."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from catro_deploy.data.decoding import in_threads
from catro_deploy.data.sources import ImageSource, PackedImage, size_of
from catro_deploy.errors import DataError

__all__ = ["MOST_COMPARED", "Copies", "find_copies"]

MOST_COMPARED = 20_000
"""At most this many test images are compared, evenly spaced over all of them."""


@dataclass(frozen=True)
class Copies:
    """How many of ``compared`` test images are also in another split, and the first of them with its copy."""

    count: int
    compared: int
    example: tuple[ImageSource, ImageSource] | None


def find_copies(
    test: Sequence[ImageSource], others: Sequence[Sequence[ImageSource]], advance: Callable[[float], None]
) -> Copies:
    """Compare image files byte by byte; ``advance`` takes how many of ``others`` have been compared.

    Only those that are as large as a test file are read. A file that cannot be read counts as no copy.
    """
    places = np.linspace(0, len(test) - 1, min(len(test), MOST_COMPARED)).round().astype(int).tolist()
    sizes = {size_of(test[place]) for place in places} - {None}
    contents = list(in_threads(lambda place: _content(test[place]), places))
    known = {content for content in contents if content is not None}
    found: dict[bytes, ImageSource] = {}

    def content_if_alike(source: ImageSource) -> bytes | None:
        return _content(source) if size_of(source) in sizes else None

    for files in others:
        for source, content in zip(files, in_threads(content_if_alike, files), strict=True):
            if content in known:
                found.setdefault(content, source)
            advance(1)
    pairs = [(test[place], found[content]) for place, content in zip(places, contents, strict=True) if content in found]
    return Copies(len(pairs), len(places), pairs[0] if pairs else None)


def _content(source: ImageSource) -> bytes | None:
    """A digest of the content; None if it cannot be read."""
    if size_of(source) is None:  # a pipe would wait for a writer
        return None
    try:
        content = source.read() if isinstance(source, PackedImage) else source.read_bytes()
    except (OSError, DataError):
        return None
    return hashlib.blake2b(content, digest_size=16).digest()
