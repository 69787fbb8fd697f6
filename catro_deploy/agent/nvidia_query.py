"""``nvidia-smi --query-gpu`` as a running process, whose readings are fetched without blocking."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["NVIDIA_SMI", "NvidiaQuery", "nvidia_query"]

NVIDIA_SMI = "nvidia-smi"
PATIENCE_S = 20
READ_BYTES = 1 << 16


class NvidiaQuery:
    """The process's readings of the first GPU."""

    def __init__(self, descriptor: int, names: Sequence[str]) -> None:
        self._descriptor, self._names = descriptor, names
        self._unfinished = b""
        os.set_blocking(descriptor, False)

    def readings(self) -> list[dict[str, str]]:
        """The readings since the last call, by the names of their fields."""
        found = self._unfinished
        while True:
            try:
                piece = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                break
            if not piece:
                break
            found += piece
        *lines, self._unfinished = found.split(b"\n")
        rows = [[value.strip() for value in line.decode(errors="replace").split(",")] for line in lines]
        return [dict(zip(self._names, row)) for row in rows if len(row) == len(self._names)]  # noqa: B905 - Python 3.10


@contextmanager
def nvidia_query(names: Sequence[str], every_ms: int, program: str = NVIDIA_SMI) -> Iterator[NvidiaQuery | None]:
    """Readings, during the block, of those fields of ``names`` that the driver knows.

    None if nvidia-smi is missing, or knows none of them: drivers add and rename fields.
    """
    known = _known(names, program)
    if not known:
        yield None
        return
    command = [program, "--id=0", f"--query-gpu={','.join(known)}", "--format=csv,noheader,nounits"]
    with subprocess.Popen(
        [*command, f"--loop-ms={every_ms}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield NvidiaQuery(process.stdout.fileno(), known)
        finally:
            process.kill()


def _known(names: Sequence[str], program: str) -> list[str]:
    try:
        done = subprocess.run(
            [program, "--help-query-gpu"], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [name for name in names if f'"{name}"' in done.stdout]
