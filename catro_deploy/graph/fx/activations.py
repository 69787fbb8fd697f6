"""Values of a network, kept for each batch for later passes: in memory up to a limit, then in a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from catro_deploy.graph.fx.pool import MemoryPool
from catro_deploy.graph.fx.spill import SpillFile

__all__ = ["Activations", "MemoryLimit", "map_tensors", "size_bytes"]


class MemoryLimit:
    """Bytes that all Activations of a pass may hold in memory together; the rest goes to ``file``, in ``folder``."""

    def __init__(self, limit_bytes: int, folder: Path | None = None) -> None:
        self.left_bytes = limit_bytes
        self.pool = MemoryPool(limit_bytes)
        self.file = SpillFile(folder)


@dataclass(frozen=True)
class _Stored:
    """Where a tensor is stored: in the pool, or in the file, from which it returns to its ``device``.

    Images with ``channels_last`` are stored in that layout: ``shape`` is (n, height, width, channels).
    """

    in_file: bool
    start: int
    shape: torch.Size
    channels_last: bool
    dtype: torch.dtype
    device: torch.device

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize


class Activations:
    """One value of the network for every batch, in order: a tensor, or nested tuples and lists of tensors and numbers.

    Values that are ``only_read`` are returned without a copy and may be read until their batch is released; others,
    which in-place operations may overwrite, are copied. The stored value is always a copy.
    """

    def __init__(self, limit: MemoryLimit, *, only_read: bool = False) -> None:
        self.claimed_bytes = 0
        """Memory in use."""
        self.spilled_bytes = 0
        """Bytes in the file that may still be read."""
        self._limit = limit
        self._hand_out: Callable[[torch.Tensor], torch.Tensor] = _itself if only_read else torch.clone
        self._batches: list[Any] = []

    def __getitem__(self, batch: int) -> Any:  # noqa: ANN401 - whatever the network computes
        """The value of a batch."""
        return map_tensors(self._batches[batch], self._hand_out, self._hand_out_stored)

    def append(self, value: Any) -> None:  # noqa: ANN401
        """Keep a copy of the value of the next batch.

        Raises:
            StorageError: memory is used up and the disk is full.
        """
        self._batches.append(map_tensors(value, self._keep))

    def take(self, channels: Sequence[int], axis: int) -> None:
        """Keep only ``channels``, which are on ``axis``, of every batch."""
        for batch in range(len(self._batches)):
            value = map_tensors(self._batches[batch], _itself, self._load)
            narrow = value.index_select(axis, torch.tensor(channels, device=value.device))
            self.release(batch)  # frees the memory of the wide one before the narrow one is stored
            self._batches[batch] = self._keep(narrow)

    def release(self, batch: int) -> None:
        """Free the value of one batch, which is not read again."""
        map_tensors(self._batches[batch], self._drop, self._drop)
        self._batches[batch] = None

    def close(self) -> None:
        """Free everything."""
        for batch in range(len(self._batches)):
            self.release(batch)
        self._batches = []

    def _keep(self, value: torch.Tensor) -> torch.Tensor | _Stored:
        if value.nbytes <= self._limit.left_bytes and (kept := self._in_memory(value)) is not None:
            self._claim(value.nbytes)
            return kept
        channels_last, value = _laid_out(value)
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        start = self._limit.file.store(content.data)
        self.spilled_bytes += value.nbytes
        return _Stored(True, start, value.shape, channels_last, value.dtype, value.device)

    def _in_memory(self, value: torch.Tensor) -> torch.Tensor | _Stored | None:
        """A copy of ``value`` in the pool; None if no free range is large enough."""
        if value.device.type != "cpu":
            return value.clone()
        channels_last, value = _laid_out(value)
        start = self._limit.pool.store(value)
        return None if start is None else _Stored(False, start, value.shape, channels_last, value.dtype, value.device)

    def _claim(self, size_bytes: int) -> None:
        self._limit.left_bytes -= size_bytes
        self.claimed_bytes += size_bytes

    def _hand_out_stored(self, place: _Stored) -> torch.Tensor:
        value = self._load(place)
        return value if place.in_file else self._hand_out(value)

    def _load(self, place: _Stored) -> torch.Tensor:
        if place.in_file:
            value = torch.empty(place.shape, dtype=place.dtype)
            self._limit.file.load(place.start, value.reshape(-1).view(torch.uint8).numpy().data)
            value = value.to(place.device)
        else:
            value = self._limit.pool.view(place.start, place.shape, place.dtype)
        return value.movedim(-1, 1) if place.channels_last else value

    def _drop(self, kept: torch.Tensor | _Stored) -> None:
        if isinstance(kept, _Stored) and kept.in_file:
            self._limit.file.free(kept.start, kept.nbytes)
            self.spilled_bytes -= kept.nbytes
            return
        if isinstance(kept, _Stored):
            self._limit.pool.free(kept.start, kept.nbytes)
        self._claim(-kept.nbytes)


def _laid_out(value: torch.Tensor) -> tuple[bool, torch.Tensor]:
    """Whether ``value`` is in channels-last layout, and ``value``, if so as a view (n, height, width, channels)."""
    channels_last = value.ndim == 4 and value.is_contiguous(memory_format=torch.channels_last)
    channels_last = channels_last and not value.is_contiguous()
    return channels_last, value.movedim(1, -1) if channels_last else value


def _itself(value: torch.Tensor) -> torch.Tensor:
    return value


def size_bytes(value: Any) -> int:  # noqa: ANN401 - whatever the network computes
    """Bytes of the tensors in ``value``."""
    if isinstance(value, tuple | list):
        return sum(size_bytes(part) for part in value)
    return value.nbytes if isinstance(value, torch.Tensor) else 0


def map_tensors(
    value: Any,  # noqa: ANN401 - whatever the network computes
    change: Callable[[torch.Tensor], Any],
    load: Callable[[_Stored], Any] | None = None,
) -> Any:  # noqa: ANN401
    """``value`` with ``change`` applied to each tensor and ``load`` to each stored one; all else stays."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, _Stored) and load is not None:
        return load(value)
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return type(value)(map_tensors(part, change, load) for part in value)
    return value
