"""Where the bytes of an image are: in a separate file, or in a part of an uncompressed tar file."""

import os
import stat
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import DataError

__all__ = ["ImageSource", "PackedImage", "PackedImages", "opened", "size_of"]

HEADER_BYTES = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class PackedImage:
    """An image file inside ``shard``: ``size_bytes`` bytes from ``offset`` on."""

    shard: Path
    offset: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self._name()} of {self.shard}"

    def read(self) -> bytes:
        """The bytes of the file.

        Raises:
            DataError: the shard is missing or shorter than it was.
        """
        content = self._at(self.offset, self.size_bytes)
        if len(content) < self.size_bytes:
            raise DataError(f"The shard {self.shard} has become shorter.", "Leave shards as they are during a run.")
        return content

    def _name(self) -> str:
        try:
            header = self._at(self.offset - HEADER_BYTES, HEADER_BYTES)
            return tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").name
        except (DataError, tarfile.HeaderError):
            return f"byte {self.offset}"

    def _at(self, offset: int, count: int) -> bytes:
        try:
            with self.shard.open("rb", buffering=0) as file:
                return os.pread(file.fileno(), count, offset)
        except OSError as error:
            raise DataError(f"The shard {self.shard} cannot be read: {error.strerror}.", "Put it back.") from error


ImageSource = Path | PackedImage


class PackedImages(Sequence[PackedImage]):
    """Images in ``shards``, in 20 bytes of memory each.

    Attributes:
        shards: the tar files.
        owners: index of each image's shard, shape (n,).
        offsets: offset of its first byte there, shape (n,).
        sizes: its size in bytes, shape (n,).
    """

    def __init__(
        self, shards: Sequence[Path], owners: NDArray[np.int32], offsets: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> None:
        self.shards, self.owners, self.offsets, self.sizes = shards, owners, offsets, sizes

    def __len__(self) -> int:
        return len(self.owners)

    @overload
    def __getitem__(self, place: int) -> PackedImage: ...
    @overload
    def __getitem__(self, place: slice) -> "PackedImages": ...
    def __getitem__(self, place: int | slice) -> "PackedImage | PackedImages":
        if isinstance(place, slice):
            return self.at(np.arange(len(self))[place])
        return PackedImage(self.shards[self.owners[place]], int(self.offsets[place]), int(self.sizes[place]))

    def at(self, places: NDArray[np.int64]) -> "PackedImages":
        """The images at ``places``, in that order."""
        return PackedImages(self.shards, self.owners[places], self.offsets[places], self.sizes[places])


def opened(source: ImageSource) -> Path | BytesIO:
    """The image as a file for Pillow.

    Raises:
        DataError: a shard is missing or cannot be read.
    """
    return source if isinstance(source, Path) else BytesIO(source.read())


def size_of(source: ImageSource) -> int | None:
    """Size of the image's file in bytes; None if there is no regular file."""
    if isinstance(source, PackedImage):
        return source.size_bytes
    try:
        status = os.stat(source)  # noqa: PTH116 - called a million times
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
