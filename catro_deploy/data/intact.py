"""Find the image files that can be decoded: each is tried once, and again only if it has changed since.

Outcomes are kept in the user's cache, by path, size and time stamps of the files below the dataset's root.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from catro_deploy.data.decoding import decode, draft, in_threads
from catro_deploy.data.listing import taken
from catro_deploy.data.sources import ImageSource, PackedImage
from catro_deploy.errors import DataError, StorageError, UsageError
from catro_deploy.files import replacing, require_regular, text_hash
from catro_deploy.resources import cache_folder
from catro_deploy.settings import DataSettings

__all__ = ["intact_files", "require_intact"]

_Source = TypeVar("_Source", bound=ImageSource)
Keys = NDArray[np.uint64]

NAMED = 5
"""At most this many files are named in a message."""


def intact_files(
    paths: Sequence[_Source], labels: NDArray[np.int64], settings: DataSettings
) -> tuple[Sequence[_Source], NDArray[np.int64], list[_Source]]:
    """Return the ``paths`` that can be decoded, their ``labels`` (n,), and the other paths.

    Without ``settings.skip_corrupt``, all paths are returned unchecked. With it, all files are decoded.

    Raises:
        DataError: no image of a class can be decoded.
    """
    if not settings.skip_corrupt:
        return paths, labels, []
    kept = _decodable(paths, settings.root)
    left, out = np.flatnonzero(kept), np.flatnonzero(~kept)
    for label in np.setdiff1d(labels, labels[left]):
        first = paths[int(np.flatnonzero(labels == label)[0])]
        raise DataError(
            f"None of the {(labels == label).sum()} images of one class can be decoded; the first is {first}.",
            "Replace them, or take the class out.",
        )
    return taken(paths, left), labels[left], list(taken(paths, out))


def require_intact(paths: Sequence[ImageSource], root: Path, advance: Callable[[float], None]) -> None:
    """Check that all ``paths``, of the dataset in ``root``, can be decoded; ``advance`` takes how many have been tried.

    Raises:
        DataError: some cannot; the message names the first ones.
    """
    faults: dict[ImageSource, DataError] = {}
    for place in np.flatnonzero(~_decodable(paths, root, advance)).tolist():
        # Again: the cache has no reason, and may hold a passing fault of the disk.
        try:
            decode(paths[place], _Smallest())
        except DataError as error:
            faults[paths[place]] = error
    if faults:
        (_, first), *others = faults.items()
        more = f"\n{_further([path for path, _ in others])}" if others else ""
        raise DataError(first.problem + more, first.hint)


def _further(paths: Sequence[ImageSource]) -> str:
    left = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return f"Nor can {', '.join(map(str, paths[:NAMED]))}{left}."


def _decodable(
    paths: Sequence[ImageSource], root: Path, advance: Callable[[float], None] = lambda steps: None
) -> NDArray[np.bool_]:
    """Whether each of ``paths`` can be decoded: those whose outcome is not in the cache are tried."""
    keys = np.array([_key(path) for path in paths], np.uint64)
    intact, corrupt = _read(_outcomes(root))
    unknown = np.flatnonzero(~np.isin(keys, np.concatenate([intact, corrupt])))
    fine = np.empty(len(unknown), bool)
    advance(len(paths) - len(unknown))
    for place, outcome in enumerate(in_threads(lambda place: _is_intact(paths[place]), unknown.tolist())):
        fine[place] = outcome
        advance(1)
    kept = np.isin(keys, intact)
    kept[unknown] = fine
    if len(unknown):
        _write(_outcomes(root), np.union1d(intact, keys[unknown][fine]), np.union1d(corrupt, keys[unknown][~fine]))
    return kept


class _Smallest:
    """The image at the decoder's smallest size: all data of the file is still read."""

    channels = 3

    def read(self, file: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
        draft(file, (1, 1))
        return convert(file)


def _is_intact(source: ImageSource) -> bool:
    try:
        decode(source, _Smallest())
    except DataError:
        return False
    return True


def _key(source: ImageSource) -> int:
    """A key that identifies the current version of an image."""
    path, place = (source.shard, f" {source.offset}") if isinstance(source, PackedImage) else (source, "")
    try:
        status = path.stat()
        stamp = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}{place}"
    except OSError as error:
        stamp = str(error.errno)
    return int.from_bytes(hashlib.blake2b(os.fsencode(path) + stamp.encode(), digest_size=8).digest())


def _outcomes(root: Path) -> Path | None:
    """The file in which outcomes are kept; None for a user without a home folder."""
    try:
        return cache_folder() / "decoded" / f"{text_hash(str(root.resolve()))[:32]}.npz"
    except UsageError:
        return None


def _read(path: Path | None) -> tuple[Keys, Keys]:
    """Keys of files that can be decoded, and of those that cannot."""
    try:
        if path is not None:
            require_regular(path)
            with path.open("rb") as file:
                archive = np.load(file, allow_pickle=False)
                return archive["intact"].astype(np.uint64), archive["corrupt"].astype(np.uint64)
    except (OSError, ValueError, LookupError, EOFError, BadZipFile):
        pass
    return np.empty(0, np.uint64), np.empty(0, np.uint64)


def _write(path: Path | None, intact: Keys, corrupt: Keys) -> None:
    if path is not None:
        with suppress(StorageError, UsageError), replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, intact=intact, corrupt=corrupt)
