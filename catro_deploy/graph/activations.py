"""Feature maps kept between the segments of a sequential pass: in memory up to a limit, then in a mapped file."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from catro_deploy.errors import StorageError

__all__ = ["Activations", "MemoryLimit"]


class MemoryLimit:
    """Bytes that all Activations of a pass may hold in memory together."""

    def __init__(self, limit_bytes: int, folder: Path | None = None) -> None:
        self._left_bytes = limit_bytes
        self.folder = folder
        self.spilled_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Claim memory; False if there is not so much left."""
        if size_bytes > self._left_bytes:
            return False
        self._left_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Return memory that was claimed."""
        self._left_bytes += size_bytes


class Activations:
    """One value of the network for every batch, in order."""

    def __init__(self, limit: MemoryLimit) -> None:
        self._limit = limit
        self._batches: list[torch.Tensor] = []
        self._claimed: list[int] = []

    def __getitem__(self, batch: int) -> torch.Tensor:
        return self._batches[batch]

    def append(self, value: torch.Tensor) -> None:
        """Keep the value of the next batch.

        Raises:
            StorageError: memory is used up and the temporary folder has no room.
        """
        size_bytes = value.numel() * value.element_size()
        in_memory = self._limit.take(size_bytes)
        self._claimed.append(size_bytes if in_memory else 0)
        self._batches.append(value if in_memory else self._spill(value, size_bytes))

    def take(self, channels: Sequence[int]) -> None:
        """Keep only ``channels`` (axis 1) of every batch."""
        old, self._batches = self._batches, []
        claimed, self._claimed = self._claimed, []
        index = torch.tensor(channels)
        for place, size_bytes in enumerate(claimed):
            value = old[place].index_select(1, index.to(old[place].device))
            old[place] = torch.empty(0)  # lets go of the wide one before the next is cut
            self._limit.give_back(size_bytes)
            self.append(value)

    def close(self) -> None:
        """Let go of everything."""
        for size_bytes in self._claimed:
            self._limit.give_back(size_bytes)
        self._batches, self._claimed = [], []

    def _spill(self, value: torch.Tensor, size_bytes: int) -> torch.Tensor:
        self._limit.spilled_bytes += size_bytes
        try:
            # The file has no name, so that it vanishes with the process however that ends.
            with tempfile.TemporaryFile(dir=self._limit.folder) as file:
                os.posix_fallocate(file.fileno(), 0, max(size_bytes, 1))
                array = value.detach().cpu().numpy()
                mapped = np.memmap(file, array.dtype, "r+", shape=array.shape)
        except OSError as error:
            where = self._limit.folder or tempfile.gettempdir()
            raise StorageError(
                f"Feature maps need {size_bytes / 2**20:.1f} MiB more in {where}: {error.strerror}.",
                "Free some space, set TMPDIR to a larger disk, allow more --activation-memory, or take fewer "
                "--samples-per-class.",
            ) from None
        mapped[...] = array
        return torch.from_numpy(mapped)
