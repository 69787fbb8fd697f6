"""Which process of this computer owns which job on a device, so that identical jobs do not disturb each other."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catro_deploy.errors import StorageError
from catro_deploy.files import text_hash
from catro_deploy.resources import cache_folder

__all__ = ["Claim", "claimed"]

TOKEN_BYTES = 8


class Claim:
    """A job on a device that belongs to this process; ``name`` is the job's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = text_hash(path.name)

    def drop(self) -> None:
        """Forget the job, because the device no longer has it."""
        self.path.unlink(missing_ok=True)


@contextmanager
def claimed(work: str) -> Iterator[Claim]:
    """Claim a job for ``work``, a SHA-256, within the block.

    The file of a claim is locked while its process lives. If that process did not drop it, the next one with the same
    work takes it over, with the job that was started; otherwise the claim is new.

    Raises:
        StorageError: the cache folder cannot be written.
    """
    folder = cache_folder() / "claims"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, path = _abandoned(folder, work) or _new(folder, work)
    except OSError as error:
        raise StorageError(
            f"{folder} could not be written: {error.strerror or error}.",
            "Set the variable CATRO_CACHE to another folder.",
        ) from None
    try:
        yield Claim(path)
    finally:
        os.close(descriptor)


def _abandoned(folder: Path, work: str) -> tuple[int, Path] | None:
    for path in sorted(folder.glob(f"{work}-*")):
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:  # dropped by its owner
            continue
        if _lock(descriptor) and path.exists():
            return descriptor, path
        os.close(descriptor)
    return None


def _new(folder: Path, work: str) -> tuple[int, Path]:
    while True:
        path = folder / f"{work}-{secrets.token_hex(TOKEN_BYTES)}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if _lock(descriptor):
            return descriptor, path
        os.close(descriptor)  # another process took it between the two calls


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
