"""The contents of WebDataset shards: uncompressed tar files, with an image and its label under one key.

Format: https://github.com/webdataset/webdataset. ``a/0001.jpg`` and ``a/0001.cls`` belong together: the key ends at the
first dot after the folder. Members of one key are adjacent. Only headers and labels are read here.
"""

import json
import os
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.listing import SETTLED_NS, SUFFIXES
from catro_deploy.data.sources import PackedImages
from catro_deploy.errors import DataError, StorageError, UsageError
from catro_deploy.files import replacing, require_regular, text_hash
from catro_deploy.resources import cache_folder

__all__ = ["read_shards"]

LONGEST_LABEL_BYTES = 2**20
COMPRESSED = {b"\x1f\x8b": "gunzip", b"BZ": "bunzip2", b"\xfd7": "unxz", b"(\xb5": "unzstd"}
"""Magic numbers of compressed files, and the programs that unpack them."""


@dataclass(frozen=True)
class _Shard:
    """Rows of (offset, size in bytes, label) of the images in a shard, shape (n, 3), and a stamp of its version."""

    stamp: tuple[int, int, int]
    rows: NDArray[np.int64]


def read_shards(shards: Sequence[Path]) -> tuple[PackedImages, NDArray[np.int64]]:
    """The images in ``shards``, in the order of the files, and their labels (n,), as WebDataset numbers them.

    The index is kept in the user's cache, and rebuilt only for shards that have changed since.

    Raises:
        DataError: a shard is missing, compressed or damaged, or an image in it has no label.
    """
    found = [_indexed(shard) for shard in shards]
    rows = np.concatenate([of.rows for of in found])
    owners = np.repeat(np.arange(len(found), dtype=np.int32), [len(of.rows) for of in found])
    return PackedImages(shards, owners, rows[:, 0], rows[:, 1]), rows[:, 2]


def _indexed(path: Path) -> _Shard:
    try:
        status = path.stat()
        stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    except OSError as error:
        raise DataError(f"The shard {path} cannot be read: {error.strerror}.", "Put it back.") from error
    known = _read(_index(path))
    if known is not None and known.stamp == stamp:
        return known
    found = _Shard(stamp, _scan(path))
    if max(stamp[1:]) < time.time_ns() - SETTLED_NS:
        _write(_index(path), found)
    return found


def _scan(path: Path) -> NDArray[np.int64]:
    if not path.is_file():
        raise DataError(f"The shard {path} is not a regular file.", "Replace or remove it.")
    with path.open("rb") as file:
        if program := COMPRESSED.get(file.read(2)):
            raise DataError(
                f"The shard {path} is compressed, so individual images in it cannot be located.",
                f"Unpack it first: {program}",
            )
        rows = [
            _sample(path, file, key, list(members))
            for key, members in groupby(_members(path, file), lambda member: _split(member.name)[0])
        ]
    return np.array([row for row in rows if row is not None], np.int64).reshape(-1, 3)


def _members(path: Path, file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files in the tar; its own list of them is cleared each time to save memory."""
    damaged = DataError(f"The shard {path} is damaged or not a complete tar file.", "Write or download it again.")
    file.seek(0)
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]
                if member.isreg():
                    yield member
            file.seek(tar.offset)  # a header that cannot be read ends the tar silently
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise damaged from error
    if any(file.read(tarfile.BLOCKSIZE)):
        raise damaged


def _split(name: str) -> tuple[str, str]:
    """Key and suffix of a member: its suffix begins at the first dot after the folder."""
    folder, slash, last = name.rpartition("/")
    stem, _, suffix = last.partition(".")
    return folder + slash + stem, suffix.lower()


def _sample(path: Path, file: BinaryIO, key: str, members: Sequence[tarfile.TarInfo]) -> tuple[int, int, int] | None:
    """Offset, size in bytes and label of the image of ``key``; None if it has no image."""
    by_suffix = {_split(member.name)[1]: member for member in members}
    images = [member for suffix, member in by_suffix.items() if f".{suffix.rpartition('.')[2]}" in SUFFIXES]
    if not images:
        return None
    if len(images) > 1:
        raise DataError(f"{key} of {path} has {len(images)} images.", "Give each its own key.")
    for suffix in ("cls", "json"):
        if (member := by_suffix.get(suffix)) is not None and member.size <= LONGEST_LABEL_BYTES:
            label = _label(os.pread(file.fileno(), member.size, member.offset_data), suffix)
            if label is not None:
                return images[0].offset_data, images[0].size, label
    raise DataError(
        f"{images[0].name} of {path} has no label.",
        f'It needs {key}.cls with the index of its class, or {key}.json with "cls" or "label".',
    )


def _label(content: bytes, suffix: str) -> int | None:
    """The index of a class in a .cls or .json file; None if there is none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if suffix == "json":
        value = (
            next((value[name] for name in ("cls", "label") if name in value), None) if isinstance(value, dict) else 0
        )
    return value if type(value) is int and 0 <= value < 2**31 else None


def _index(path: Path) -> Path | None:
    """The file in which the index of a shard is cached; None for a user without a home folder."""
    try:
        return cache_folder() / "shards" / f"{text_hash(str(path.resolve()))[:32]}.npz"
    except UsageError:
        return None


def _read(path: Path | None) -> _Shard | None:
    try:
        if path is not None:
            require_regular(path)
            with path.open("rb") as file:
                archive = np.load(file, allow_pickle=False)
                size, modified, changed = archive["stamp"].tolist()
                return _Shard((size, modified, changed), archive["rows"].astype(np.int64).reshape(-1, 3))
    except (OSError, ValueError, LookupError, TypeError, EOFError, BadZipFile):
        pass
    return None


def _write(path: Path | None, shard: _Shard) -> None:
    if path is not None:
        with suppress(StorageError, UsageError), replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, stamp=np.array(shard.stamp, np.int64), rows=shard.rows)
