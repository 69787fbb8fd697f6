"""Values of a network kept for later passes, for each batch: in memory up to a limit, then in a file.

The file is read and written rather than mapped, since mapped pages count as memory of the process.
"""

import io
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from catro_deploy.errors import StorageError

__all__ = ["Activations", "MemoryLimit", "map_tensors", "size_bytes"]


EXPECTED_BYTES_PER_SECOND = 3e8
"""What a file is written and read with where that is not known yet."""
TELLING_BYTES = 2**26
"""Files have to move so much before their speed is known."""


class MemoryLimit:
    """Bytes that all Activations of a pass may hold in memory together; ``folder`` is for the files."""

    def __init__(self, limit_bytes: int, folder: Path | None = None) -> None:
        self.left_bytes = limit_bytes
        self.folder = folder
        self.spilled_bytes = 0
        self._moved_bytes, self._moving_s = 0, 0.0

    @property
    def file_bytes_per_second(self) -> float:
        """How fast files are written and read, by what was measured so far."""
        if self._moved_bytes < TELLING_BYTES:
            return EXPECTED_BYTES_PER_SECOND
        return self._moved_bytes / max(self._moving_s, 1e-9)

    @contextmanager
    def moving(self, size_bytes: int) -> Iterator[None]:
        """Measure what this block needs to write or read ``size_bytes``."""
        began = time.perf_counter()
        yield
        self._moving_s += time.perf_counter() - began
        self._moved_bytes += size_bytes

    @property
    def free_disk_bytes(self) -> int:
        """Room for files."""
        return shutil.disk_usage(self.folder or tempfile.gettempdir()).free

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

    offset: int
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize


class Activations:
    """One value of the network for every batch, in order: a tensor, or tuples, lists and numbers with tensors.

    Values that are ``only_read`` are handed out as they are; of others, which operations in place may write over,
    copies. What comes in is always copied: the network's own tensors lie between others that are soon freed, and
    keeping them would leave holes in the heap that hold several times the limit.
    """

    def __init__(self, limit: MemoryLimit, *, only_read: bool = False) -> None:
        self._limit = limit
        self._hand_out: Callable[[torch.Tensor], torch.Tensor] = _itself if only_read else torch.clone
        self._batches: list[Any] = []
        self._claimed: list[int] = []
        self._file: io.FileIO | None = None
        self._close_file: Callable[[], object] = lambda: None

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
            StorageError: memory is used up and the temporary folder has no room.
        """
        kept, claimed = self._keep(value, torch.clone)
        self._batches.append(kept)
        self._claimed.append(claimed)

    def take(self, channels: Sequence[int], axis: int) -> None:
        """Keep only ``channels``, which are on ``axis``, of every batch."""
        for batch in range(len(self._batches)):
            value = map_tensors(self._batches[batch], _itself, self._load)
            narrow = value.index_select(axis, torch.tensor(channels, device=value.device))
            self.release(batch)  # gives back the memory of the wide one before the narrow one takes its own
            self._batches[batch], self._claimed[batch] = self._keep(narrow, _itself)

    def release(self, batch: int) -> None:
        """Let go of the value of one batch, which is read no more; a file keeps its size."""
        self._limit.give_back(self._claimed[batch])
        self._batches[batch], self._claimed[batch] = None, 0

    def close(self) -> None:
        """Let go of everything."""
        for batch in range(len(self._batches)):
            self.release(batch)
        self._batches, self._claimed = [], []
        self._close_file()

    def _keep(self, value: Any, take_in: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Any, int]:  # noqa: ANN401
        claim = size_bytes(value)
        in_memory = self._limit.take(claim)
        return map_tensors(value, take_in if in_memory else self._spill), claim if in_memory else 0

    def _spill(self, value: torch.Tensor) -> _InFile:
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        try:
            if self._file is None:
                # The file has no name, so that it vanishes with the process however that ends.
                self._file = tempfile.TemporaryFile(buffering=0, dir=self._limit.folder)  # noqa: SIM115
                self._close_file = weakref.finalize(self, self._file.close)
            offset, rest = self._file.seek(0, os.SEEK_END), content.data
            with self._limit.moving(content.size):
                while rest:
                    rest = rest[self._file.write(rest) :]
        except OSError as error:
            where = self._limit.folder or tempfile.gettempdir()
            raise StorageError(
                f"Feature maps need {content.size / 2**20:.1f} MiB more in {where}: {error.strerror}.",
                "Free some space, set TMPDIR to a larger disk, allow more --activation-memory, or take fewer "
                "--samples-per-class.",
            ) from None
        self._limit.spilled_bytes += content.size
        return _InFile(offset, value.shape, value.dtype, value.device)

    def _load(self, place: _InFile) -> torch.Tensor:
        value = torch.empty(place.shape, dtype=place.dtype)
        rest = value.reshape(-1).view(torch.uint8).numpy().data
        if self._file is not None:
            self._file.seek(place.offset)
        with self._limit.moving(place.nbytes):
            while rest:
                count = self._file.readinto(rest) if self._file is not None else 0
                if not count:
                    raise StorageError("The temporary file of feature maps was cut short.", "Run the stage again.")
                rest = rest[count:]
        return value.to(place.device)


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
