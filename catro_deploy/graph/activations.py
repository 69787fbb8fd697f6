"""Values of a network kept for later passes, for each batch: in memory up to a limit, then in a file."""

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from catro_deploy.graph.spill import SpillFile

__all__ = ["Activations", "MemoryLimit", "map_tensors", "size_bytes"]


APART_BYTES = 2**17
"""Below this, pages would be wasted."""


class MemoryLimit:
    """Bytes that all Activations of a pass may hold in memory together; the rest goes to ``file``, in ``folder``."""

    def __init__(self, limit_bytes: int, folder: Path | None = None) -> None:
        self.left_bytes = limit_bytes
        self.file = SpillFile(folder)

    def take(self, size_bytes: int) -> bool:
        """Claim memory; False if there is not so much left."""
        if size_bytes > self.left_bytes:
            return False
        self.left_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Return memory that was claimed."""
        self.left_bytes += size_bytes


@dataclass(frozen=True)
class _InFile:
    """Where a tensor lies in the file, and what it is."""

    start: int
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize


class Activations:
    """One value of the network for every batch, in order: a tensor, or tuples, lists and numbers with tensors.

    Values that are ``only_read`` are handed out as they are; of others, which operations in place may write over,
    copies. What comes in is always copied, out of the heap: there it would lie between tensors that are soon freed, and
    the holes that these leave would hold several times the limit.
    """

    def __init__(self, limit: MemoryLimit, *, only_read: bool = False) -> None:
        self._limit = limit
        self._hand_out: Callable[[torch.Tensor], torch.Tensor] = _itself if only_read else torch.clone
        self._batches: list[Any] = []
        self._claimed: list[int] = []

    @property
    def claimed_bytes(self) -> int:
        """Memory in use."""
        return sum(self._claimed)

    @property
    def spilled_bytes(self) -> int:
        """What lies in the file and may still be read."""
        return sum(size_bytes(value) for value, claim in zip(self._batches, self._claimed, strict=True) if not claim)

    def __getitem__(self, batch: int) -> Any:  # noqa: ANN401 - whatever the network computes
        """The value of a batch."""
        return map_tensors(self._batches[batch], self._hand_out, self._load)

    def append(self, value: Any) -> None:  # noqa: ANN401
        """Keep a copy of the value of the next batch.

        Raises:
            StorageError: memory is used up and the disk is full.
        """
        kept, claimed = self._keep(value)
        self._batches.append(kept)
        self._claimed.append(claimed)

    def take(self, channels: Sequence[int], axis: int) -> None:
        """Keep only ``channels``, which are on ``axis``, of every batch."""
        for batch in range(len(self._batches)):
            value = map_tensors(self._batches[batch], _itself, self._load)
            narrow = value.index_select(axis, torch.tensor(channels, device=value.device))
            self.release(batch)  # gives back the memory of the wide one before the narrow one takes its own
            self._batches[batch], self._claimed[batch] = self._keep(narrow)

    def release(self, batch: int) -> None:
        """Let go of the value of one batch, which is read no more."""
        self._limit.give_back(self._claimed[batch])
        map_tensors(self._batches[batch], _itself, self._free)
        self._batches[batch], self._claimed[batch] = None, 0

    def close(self) -> None:
        """Let go of everything."""
        for batch in range(len(self._batches)):
            self.release(batch)
        self._batches, self._claimed = [], []

    def _keep(self, value: Any) -> tuple[Any, int]:  # noqa: ANN401
        claim = size_bytes(value)
        in_memory = self._limit.take(claim)
        return map_tensors(value, _copied_apart if in_memory else self._spill), claim if in_memory else 0

    def _spill(self, value: torch.Tensor) -> _InFile:
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return _InFile(self._limit.file.store(content.data), value.shape, value.dtype, value.device)

    def _load(self, place: _InFile) -> torch.Tensor:
        value = torch.empty(place.shape, dtype=place.dtype)
        self._limit.file.load(place.start, value.reshape(-1).view(torch.uint8).numpy().data)
        return value.to(place.device)

    def _free(self, place: _InFile) -> None:
        self._limit.file.free(place.start, place.nbytes)


def _copied_apart(value: torch.Tensor) -> torch.Tensor:
    """A copy; a large one in pages of its own, which go back to the system with it."""
    if value.device.type != "cpu" or value.nbytes < APART_BYTES:
        return value.clone()
    return torch.frombuffer(mmap.mmap(-1, value.nbytes), dtype=value.dtype).view(value.shape).copy_(value)


def _itself(value: torch.Tensor) -> torch.Tensor:
    return value


def size_bytes(value: Any) -> int:  # noqa: ANN401 - whatever the network computes
    """Bytes of the tensors in ``value``."""
    if isinstance(value, tuple | list):
        return sum(size_bytes(part) for part in value)
    return value.nbytes if isinstance(value, torch.Tensor | _InFile) else 0


def map_tensors(
    value: Any,  # noqa: ANN401 - whatever the network computes
    change: Callable[[torch.Tensor], Any],
    load: Callable[[_InFile], Any] | None = None,
) -> Any:  # noqa: ANN401
    """``value`` with each tensor changed, and each that lies in a file loaded; all else stays."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, _InFile) and load is not None:
        return load(value)
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return type(value)(map_tensors(part, change, load) for part in value)
    return value
