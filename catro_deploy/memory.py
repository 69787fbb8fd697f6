"""Memory of the process: pages of freed tensors are reused, where malloc would return them to the system.

PyTorch takes tensors on a CPU from malloc. glibc maps each large one on its own and unmaps it when it is freed, so that
every feature map of a batch costs a page fault for each 4 KiB, again and again: at 224x224 that takes longer than the
arithmetic.
"""

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

__all__ = ["reused_pages"]

# Parameters of mallopt, from glibc's malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
REUSING = {MMAP_MAX: 0, TRIM_THRESHOLD: -1}
"""No block is mapped separately, and free memory at the end of the heap stays."""
# A call of mallopt ends glibc's adaptation of the thresholds permanently. Its defaults of 128 KiB would then be fixed
# and map far more than before; these are the adapted values in a program with tensors of 32 MiB.
ORDINARY = {MMAP_THRESHOLD: 32 * 2**20, MMAP_MAX: 65536, TRIM_THRESHOLD: 64 * 2**20}
CHOSEN_BY_USERS = ("MMAP_MAX", "MMAP_THRESHOLD", "TRIM_THRESHOLD")


@contextmanager
def reused_pages() -> Iterator[None]:
    """Keep the pages of tensors that are freed in this block for reuse; return them to the system at its end.

    For loops on a CPU that free and allocate the same large tensors. It holds for all threads of the process and may be
    nested, also by several threads. Other C libraries than glibc, and a malloc that was set up by the environment
    (``MALLOC_MMAP_MAX_``, ``GLIBC_TUNABLES``), stay as they are.
    """
    # A block instead of a global setting: timed inferences, and programs that use the Python API, should see malloc's
    # usual behaviour, and free memory.
    _MALLOC.enter()
    try:
        yield
    finally:
        _MALLOC.leave()


class _Malloc:
    """glibc's malloc, set up for reuse while at least one block is open; nothing happens without ``libc``."""

    def __init__(self, libc: ctypes.CDLL | None) -> None:
        self._libc = libc
        self._lock = Lock()
        self._open_blocks = 0

    def enter(self) -> None:
        with self._lock:
            self._open_blocks += 1
            if self._open_blocks == 1:
                self._set(REUSING)

    def leave(self) -> None:
        with self._lock:
            self._open_blocks -= 1
            if not self._open_blocks:
                self._set(ORDINARY)
                if self._libc is not None:
                    self._libc.malloc_trim(ctypes.c_size_t(0))

    def _set(self, values: Mapping[int, int]) -> None:
        if self._libc is not None:
            for parameter, value in values.items():
                self._libc.mallopt(parameter, value)


def _adjustable_libc(platform: str, environment: Mapping[str, str]) -> ctypes.CDLL | None:
    """The process's C library if it is glibc and ``environment`` does not set its thresholds."""
    if platform != "linux":
        return None
    chosen = [name for name in environment if name.startswith("MALLOC_")]
    chosen.append(environment.get("GLIBC_TUNABLES", "").upper())
    if any(setting in text for setting in CHOSEN_BY_USERS for text in chosen):
        return None
    libc = ctypes.CDLL(None)
    needed = ("gnu_get_libc_version", "mallopt", "malloc_trim")
    return libc if all(hasattr(libc, name) for name in needed) else None


_MALLOC = _Malloc(_adjustable_libc(sys.platform, os.environ))
