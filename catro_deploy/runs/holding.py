"""A lock file that lets only one process work at a time."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catro_deploy.errors import RunFolderError, StorageError
from catro_deploy.files import remedy

__all__ = ["hold"]


@contextmanager
def hold(lock: Path, where: str, elsewhere: str) -> Iterator[None]:
    """Lock the file ``lock`` for this process; errors describe with ``where`` what it guards, and with
    ``elsewhere`` how to use another: ``choose another folder with --run``.

    Raises:
        RunFolderError: another process has locked it, or there is a file where its folder must be.
        StorageError: it cannot be created.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666), "r+b", 0)
    except (FileExistsError, NotADirectoryError) as error:
        raise RunFolderError(
            f"{lock.parent} cannot be a folder: there is a file at or above that path.",
            f"{remedy(error, elsewhere)}.",
        ) from None
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ELOOP):
            raise _not_a_lock(lock) from None
        raise StorageError(
            f"{lock.parent} cannot be written: {error.strerror}.", f"{remedy(error, elsewhere)}."
        ) from error
    with handle:
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            raise _not_a_lock(lock)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(
                f"Another catro-deploy is working {where}.",
                f"Wait until it finishes, or {elsewhere}.",
            ) from None
        yield


def _not_a_lock(lock: Path) -> RunFolderError:
    return RunFolderError(f"{lock} is not a regular file, so it cannot be a lock.", "Remove it, and run again.")
