"""List the image files below a folder: a long list is cached, and only changed folders are read again."""

import json
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.sources import ImageSource, PackedImages
from catro_deploy.errors import DataError, StorageError, UsageError
from catro_deploy.files import require_regular, text_hash, write_text
from catro_deploy.resources import cache_folder

__all__ = ["KEPT_FROM", "SETTLED_NS", "SUFFIXES", "FilePaths", "image_files", "refuse_misnamed", "taken"]

_Source = TypeVar("_Source", bound=ImageSource)

SUFFIXES = frozenset({".png", ".ppm", ".pgm", ".pbm", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"})

MISNAMED = {"training": "train", "valid": "val", "validation": "val", "testing": "test"}
"""Other usual names of the folders of splits, and the names that are read."""

KEPT_FROM = 10_000
"""Listings of fewer files are not cached: they are fast."""

VERSION = 2
SETTLED_NS = 2 * 10**9
"""Folders changed this recently are not cached: they may change again within one tick of the file system's clock."""


class FilePaths(Sequence[Path]):
    """Paths below ``root`` in little memory: one string of bytes with all names, and where each begins and ends."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        encoded = [os.fsencode(name) for name in names]
        self._root, self._text = root, b"".join(encoded)
        self._ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
        self._begins = np.concatenate([np.zeros(1, np.int64), self._ends])[: len(encoded)]

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, place: int) -> Path: ...
    @overload
    def __getitem__(self, place: slice) -> "FilePaths": ...
    def __getitem__(self, place: int | slice) -> "Path | FilePaths":
        if isinstance(place, slice):
            return self.at(np.arange(len(self))[place])
        return self._root / self.name(place)

    def name(self, place: int) -> str:
        """The path at ``place``, relative to the root."""
        return os.fsdecode(self._text[self._begins[place] : self._ends[place]])

    def names(self) -> Iterator[str]:
        """All paths, relative to the root."""
        return map(self.name, range(len(self)))

    def at(self, places: NDArray[np.int64]) -> "FilePaths":
        """The paths at ``places``, in that order."""
        found = FilePaths(self._root, ())
        found._text, found._begins, found._ends = self._text, self._begins[places], self._ends[places]
        return found


def taken(paths: Sequence[_Source], places: NDArray[np.int64]) -> Sequence[_Source]:
    """The ``paths`` at ``places``, in that order."""
    if isinstance(paths, FilePaths | PackedImages):
        return cast("Sequence[_Source]", paths.at(places))
    return [paths[place] for place in places]


def image_files(root: Path, folders: Sequence[str] = ("",)) -> FilePaths:
    """All image files below ``folders`` of ``root``, by their suffix, sorted; names that begin with a dot are skipped.

    Links to folders are followed, except to one that they are in. A long listing is kept in the user's cache; then only
    folders whose inode or time stamps have changed are read again. Changes to a file's content do not change its
    folder, and are irrelevant here.

    Raises:
        DataError: a folder cannot be read.
    """
    known = _read(_index(root))
    found: dict[str, _Folder] = {}
    pending = list(folders)
    while pending:
        name = pending.pop()
        found[name] = _looked_at(root / name, known.get(name))
        below = [_joined(name, folder) for folder in found[name].folders]
        pending += [folder for folder in below if not _is_loop(root / folder)]
    names = [name for start in sorted(folders) for name in _names(found, start)]
    if len(names) >= KEPT_FROM and any(found[name] is not known.get(name) for name in found):
        _write(_index(root), {**known, **found})
    return FilePaths(root, names)


def _is_loop(folder: Path) -> bool:
    """Whether ``folder`` is a link to a folder that it is in."""
    return folder.is_symlink() and any(folder.samefile(parent) for parent in folder.parents)


def refuse_misnamed(root: Path, names: Collection[str]) -> None:
    """Check that ``root`` has no folder with another usual name for one of the splits ``names``, which it lacks.

    Raises:
        DataError: it has one, whose images would not be used as what they are.
    """
    for other, name in MISNAMED.items():
        if name in names and (root / other).is_dir() and not (root / name).is_dir():
            raise DataError(f"{root} has a folder {other}/; its name must be {name}/.", f"Rename it to {root / name}.")


@dataclass(frozen=True)
class _Folder:
    """Names in one folder, sorted. ``stamp`` identifies its version; if empty, it must be read again."""

    stamp: list[int]
    files: list[str]
    folders: list[str]


def _looked_at(path: Path, known: _Folder | None) -> _Folder:
    """The content of the folder ``path``: ``known`` if it is current; empty if it is no folder, or no longer there."""
    try:
        status, now = path.stat(), time.time_ns()
        stamp = [status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
        if known is not None and known.stamp == stamp:
            return known
        files, folders = [], []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if os.path.splitext(entry.name)[1].lower() in SUFFIXES:  # noqa: PTH122 - called a million times
                    files.append(entry.name)
                if entry.is_dir():
                    folders.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return _Folder([], [], [])
    except OSError as error:
        hint = "Its images would be left out: make it readable, or move it elsewhere."
        raise DataError(f"The folder {path} cannot be read: {error.strerror}.", hint) from error
    settled = max(stamp[2:]) < now - SETTLED_NS
    return _Folder(stamp if settled else [], sorted(files), sorted(folders))


def _names(found: dict[str, _Folder], folder: str) -> Iterator[str]:
    """Files below ``folder``, sorted as paths are, part by part."""
    for entry, is_folder in sorted(
        [(name, False) for name in found[folder].files] + [(name, True) for name in found[folder].folders]
    ):
        name = _joined(folder, entry)
        if not is_folder:
            yield name
        elif name in found:
            yield from _names(found, name)


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _index(root: Path) -> Path | None:
    """The file in which the listing of ``root`` is cached; None for a user without a home folder."""
    try:
        return cache_folder() / "listings" / f"{text_hash(str(root.resolve()))[:32]}.json"
    except UsageError:
        return None


def _read(path: Path | None) -> dict[str, _Folder]:
    """The folders of a cached listing; empty if there is none, or one of another version."""
    if path is None:
        return {}
    try:
        require_regular(path)
        content = json.loads(path.read_bytes())
        if content["version"] == VERSION:
            return {name: _Folder(**folder) for name, folder in content["folders"].items()}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        pass
    return {}


def _write(path: Path | None, folders: dict[str, _Folder]) -> None:
    if path is not None:
        with suppress(StorageError, UsageError):  # the file only saves the time of listing again
            kept = {name: asdict(folder) for name, folder in folders.items()}
            write_text(path, json.dumps({"version": VERSION, "folders": kept}))
