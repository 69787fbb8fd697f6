"""Ranges of a file or of memory that are allocated and freed."""

import bisect

__all__ = ["FreeRanges"]


class FreeRanges:
    """Which parts of a file or of memory are in use; ``end_bytes`` is the largest extent ever used."""

    def __init__(self) -> None:
        self.end_bytes = 0
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        """Total size of the free ranges."""
        return sum(self._sizes.values())

    def take(self, size_bytes: int) -> int:
        """Allocate ``size_bytes`` in the first free range that is large enough, else at the end; return the offset."""
        for place, start in enumerate(self._starts):
            if (left := self._sizes[start] - size_bytes) >= 0:
                del self._starts[place], self._sizes[start]
                if left:
                    self._starts.insert(place, start + size_bytes)
                    self._sizes[start + size_bytes] = left
                return start
        start = self.end_bytes
        if self._starts and self._starts[-1] + self._sizes[self._starts[-1]] == start:
            start = self._starts.pop()
            del self._sizes[start]
        self.end_bytes = start + size_bytes
        return start

    def give_back(self, start: int, size_bytes: int) -> None:
        """Free a range, and merge it with its free neighbours."""
        if not size_bytes:
            return
        place = bisect.bisect(self._starts, start)
        if place < len(self._starts) and self._starts[place] == start + size_bytes:
            size_bytes += self._sizes.pop(self._starts.pop(place))
        before = self._starts[place - 1] if place else None
        if before is not None and before + self._sizes[before] == start:
            self._sizes[before] += size_bytes
        else:
            self._starts.insert(place, start)
            self._sizes[start] = size_bytes
