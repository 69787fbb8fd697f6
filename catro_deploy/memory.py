"""Process memory: pages of freed tensors are reused instead of being returned to the system, as malloc would do.

PyTorch allocates CPU tensors with malloc. glibc maps each large one separately and unmaps it when it is freed, so every
feature map of every batch costs a page fault per 4 KiB: at 224x224 this takes longer than the arithmetic.
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
"""No block is mapped separately, and free memory at the end of the heap is kept."""
# A call of mallopt permanently disables glibc's dynamic thresholds. They would then stay at their default of 128 KiB,
# and far more blocks would be mapped than before; these are the dynamic values of a program with tensors of 32 MiB.
ORDINARY = {MMAP_THRESHOLD: 32 * 2**20, MMAP_MAX: 65536, TRIM_THRESHOLD: 64 * 2**20}
CHOSEN_BY_USERS = ("MMAP_MAX", "MMAP_THRESHOLD", "TRIM_THRESHOLD")


@contextmanager
def reused_pages() -> Iterator[None]:
    """Keep the pages of tensors that are freed in this block for reuse; return them to the system at its end.

    For loops on a CPU that free and allocate the same large tensors. It affects all threads of the process, and may be
    nested, also by several threads. C libraries other than glibc, and a malloc that is configured by the environment
    (``MALLOC_MMAP_MAX_``, ``GLIBC_TUNABLES``), are left unchanged.
    """
    # A block instead of a global setting: timed inferences, and programs that use the Python API, should get malloc's
    # usual behaviour and find the memory free.
    _MALLOC.enter()
    try:
        yield
    finally:
        _MALLOC.leave()


class _Malloc:
    """glibc's malloc, configured for reuse while at least one block is open; without ``libc``, a no-op."""

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
