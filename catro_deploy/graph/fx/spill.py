"""A temporary file for what does not fit into memory; its freed ranges are reused.

Overwriting existing pages is many times faster than allocating new ones.
"""

import io
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catro_deploy.errors import StorageError
from catro_deploy.graph.fx.ranges import FreeRanges

__all__ = ["SpillFile"]

EXPECTED_BYTES_PER_SECOND = 3e8
"""Assumed speed of a file until it has been measured."""
MEASURED_FROM_BYTES = 2**26
"""Bytes to move before the speed of a file counts as measured."""


class SpillFile:
    """Bytes in an unnamed file in ``folder``, which is removed however the process ends.

    The file is read and written rather than mapped, since mapped pages count as memory of the process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.written_bytes = 0
        self._folder = folder or Path(tempfile.gettempdir())
        self._ranges = FreeRanges()
        self._file: io.FileIO | None = None
        self._moved_bytes, self._moving_s = 0, 0.0

    @property
    def bytes_per_second(self) -> float:
        """Speed of writing and reading, as measured so far."""
        if self._moved_bytes < MEASURED_FROM_BYTES:
            return EXPECTED_BYTES_PER_SECOND
        return self._moved_bytes / max(self._moving_s, 1e-9)

    @property
    def size_bytes(self) -> int:
        """Size to which the file has grown."""
        return self._ranges.end_bytes

    @property
    def room_bytes(self) -> int:
        """How much can still be stored, in the file's free ranges and on the disk."""
        return self._ranges.free_bytes + shutil.disk_usage(self._folder).free

    def store(self, content: memoryview) -> int:
        """Write ``content``, a view of bytes, and return its offset.

        Raises:
            StorageError: the disk is full.
        """
        rest = content
        try:
            with self._moving(content.nbytes):
                file, start = self._opened(), self._ranges.take(content.nbytes)
                file.seek(start)
                while rest:
                    rest = rest[file.write(rest) :]
        except OSError as error:
            raise StorageError(
                f"Feature maps need {content.nbytes / 2**20:.1f} MiB more in {self._folder}: {error.strerror}.",
                "Free some space, set TMPDIR to a larger disk, raise --activation-memory or lower --samples-per-class.",
            ) from None
        self.written_bytes += content.nbytes
        return start

    def load(self, start: int, into: memoryview) -> None:
        """Fill ``into``, a view of bytes, with the content at ``start``.

        Raises:
            StorageError: the file is too short.
        """
        with self._moving(into.nbytes):
            file = self._opened()
            file.seek(start)
            while into:
                count = file.readinto(into)
                if not count:
                    raise StorageError("The temporary file of feature maps was truncated.", "Run the stage again.")
                into = into[count:]

    def free(self, start: int, size_bytes: int) -> None:
        """Free a range."""
        self._ranges.give_back(start, size_bytes)

    def _opened(self) -> io.FileIO:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        return self._file

    @contextmanager
    def _moving(self, size_bytes: int) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._moving_s += time.perf_counter() - began
        self._moved_bytes += size_bytes
