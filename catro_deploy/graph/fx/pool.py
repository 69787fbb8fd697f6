"""Memory outside the heap for long-lived tensors."""

import mmap

import torch

from catro_deploy.errors import StorageError
from catro_deploy.graph.fx.ranges import FreeRanges

__all__ = ["MemoryPool"]

ALIGNED_BYTES = 64
"""The size of a cache line, and of the widest register."""


class MemoryPool:
    """At most ``limit_bytes`` for CPU tensors, in pages that are taken from the system when they are first used.

    On the heap, these tensors would cause fragmentation among tensors that are soon freed: small headers of other
    tensors settle in the holes, so that no tensor of the same size fits there again, and the holes add up to several
    times the limit. Tensors in the pool are identified by their offset and have no header.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = _aligned(limit_bytes)
        self._ranges = FreeRanges()
        self._pages: mmap.mmap | None = None

    def store(self, value: torch.Tensor) -> int | None:
        """Copy ``value`` and return the offset of the copy; None if no free range is large enough.

        Raises:
            StorageError: the system does not have that much memory.
        """
        size_bytes = _aligned(value.nbytes)
        start = self._ranges.take(size_bytes)
        if start + size_bytes > self._limit_bytes:
            self._ranges.give_back(start, size_bytes)
            return None
        self.view(start, value.shape, value.dtype).copy_(value)
        return start

    def view(self, start: int, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """The tensor at ``start``, without a copy."""
        if not shape.numel():
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._opened(), dtype=dtype, count=shape.numel(), offset=start).view(shape)

    def free(self, start: int, size_bytes: int) -> None:
        """Free the tensor at ``start``; no view of it may be read afterwards."""
        self._ranges.give_back(start, _aligned(size_bytes))

    def _opened(self) -> mmap.mmap:
        if self._pages is None:
            try:
                self._pages = mmap.mmap(-1, self._limit_bytes)
            except OSError as error:
                size = f"{self._limit_bytes / 2**30:.3g} GiB"
                raise StorageError(
                    f"{size} of memory for feature maps cannot be allocated: {error.strerror}.",
                    "Lower --activation-memory.",
                ) from None
        return self._pages


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNED_BYTES) * ALIGNED_BYTES
