"""Files that a process locks for its lifetime."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["alone", "is_locked", "locked"]

POLL_S = 0.5


@contextmanager
def locked(path: Path, text: str, *, wait: bool = False) -> Iterator[bool]:
    """Lock ``path`` for the block, and yield whether that succeeded; the file then contains ``text``.

    Raises:
        OSError: it cannot be written, or is a link.
    """
    descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        file.truncate(0)
        file.write(text)
        file.flush()
        yield True


@contextmanager
def alone(path: Path, who: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the device of the lock file ``path`` as ``who``; if another holds it, call ``tell`` once with its name.

    Raises:
        OSError: the file cannot be written, or is a link.
    """
    announced = False
    while True:
        with locked(path, who) as mine:
            if mine:
                yield
                return
        if not announced:
            tell(path.read_text(encoding="utf-8").strip() or "another process")
            announced = True
        time.sleep(POLL_S)


def is_locked(path: Path) -> bool:
    """Whether a process holds ``path``."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
