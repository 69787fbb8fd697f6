"""Silence C++ solvers that print: standard output is for results."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["printing_nothing"]

STDOUT = 1


@contextmanager
def printing_nothing() -> Iterator[None]:
    """Discard what compiled code prints to standard output; Python's own output before and after is kept."""
    libc = ctypes.CDLL(None)
    if sys.stdout is not None:
        sys.stdout.flush()
    libc.fflush(None)  # C has its own buffer
    try:
        kept = os.dup(STDOUT)
    except OSError:  # standard output is closed
        yield
        return
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), STDOUT)
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, STDOUT)
        os.close(kept)
