"""Atomic file writes: write to a temporary name, flush to disk, rename."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from catro_deploy.errors import StorageError, UsageError

__all__ = [
    "FULL",
    "REFUSED",
    "UNFINISHED",
    "as_path",
    "file_hash",
    "naming",
    "remedy",
    "replacing",
    "require_regular",
    "require_utf8",
    "text_hash",
    "write_bytes",
    "write_json",
    "write_text",
]

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}

UNFINISHED = ".*.part"
"""Matches the temporary files of a process that was killed while it wrote."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``.

    It replaces ``path`` if the block succeeds, otherwise it is deleted.

    Raises:
        StorageError: the disk is full, or the folder cannot be written.
        UsageError: ``path`` is a folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno == errno.EISDIR:
            raise UsageError(f"{path} cannot be written: a folder is in its place.", "Remove the folder.") from None
        raise StorageError(
            f"{path} could not be written: {error.strerror or error}.",
            f"Its earlier content is untouched. {remedy(error, 'choose another folder')}, then run again.",
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remedy(error: OSError, elsewhere: str) -> str:
    """What to do about ``error``: remove its cause, if that is possible, or write ``elsewhere``."""
    if error.errno in FULL:
        return f"Free some space, or {elsewhere}"
    if error.errno in REFUSED:
        return f"Change its permissions, or {elsewhere}"
    return elsewhere[0].upper() + elsewhere[1:]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name ``path`` in an error about a full disk: Python names files that it cannot open, not those it cannot write.

    Raises:
        OSError: the block raised it.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL and error.filename is None:
            error.filename = str(path)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write ``content`` to ``path`` atomically, as UTF-8."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
    """Write ``content`` to ``path`` as JSON.

    Raises:
        ValueError: it contains NaN or infinity, which other readers reject.
    """
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def as_path(given: str | os.PathLike[str], name: str) -> Path:
    """The argument ``name`` of the Python API as a path.

    Raises:
        UsageError: it is neither a string nor a path.
    """
    try:
        return Path(given)
    except TypeError:
        raise UsageError(f"{name} = {given!r} is not a path.", "Give a string or a pathlib.Path.") from None


def require_regular(path: Path) -> None:
    """Check that reading ``path`` terminates: opening a pipe may block forever, and a device may have no end.

    Raises:
        OSError: ``path`` exists, but is not a regular file.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")


def require_utf8(path: Path, error: type[UsageError]) -> None:
    """Check that ``path`` can be written to settings and records, which are UTF-8; file systems allow any bytes.

    Raises:
        UsageError: it cannot; raised as ``error``, the class that fits the caller.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise error(f"The path {shown} is not valid UTF-8.", "Rename that file or folder.") from None


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_hash(text: str) -> str:
    """SHA-256 of a text, in hexadecimal; it may be a path that is not valid UTF-8."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
