"""Storage of an agent on a remote device: files by their hash, and a folder for each job.

It is in ``CATRO_AGENT_HOME``, else in the folder of the agent's own file.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from catro_deploy.agent.bootstrap import arrived_bytes, receive
from catro_deploy.agent.locks import is_locked
from catro_deploy.errors import FaultError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["LOCK", "SHA256", "Store", "storage_errors"]

LOCK = "lock"
"""In the folder of a job, locked by the process that runs it."""

SHA256 = re.compile(r"[0-9a-f]{64}")
DAY_S = 24 * 3600
# Files unused for this long are removed, so that old models do not fill the device's disk.
UNUSED_S = 30 * DAY_S


class Store:
    """Files and jobs below ``home``, which is created when something is stored there."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @classmethod
    def here(cls) -> Store:
        """The store of this agent."""
        chosen = os.environ.get("CATRO_AGENT_HOME")
        return cls(Path(chosen) if chosen else Path(sys.argv[0]).absolute().parent)

    def file(self, digest: str) -> Path:
        """Where the file of this SHA-256 is, or would be."""
        if not SHA256.fullmatch(digest):
            raise FaultError(f"{digest!r} is not a SHA-256.")
        return self.home / "files" / digest

    def lacking(self, digests: Iterable[str], token: str = "") -> dict[str, int]:
        """Those of ``digests`` whose files are missing, with the number of bytes already sent by the host of ``token``.

        The others are marked as used.
        """
        lacking = {}
        for digest in digests:
            try:
                os.utime(self.file(digest))
            except FileNotFoundError:
                lacking[digest] = arrived_bytes(self.file(digest), token)
        return lacking

    def put(self, token: str, digest: str, size: int, offset: int, content: IO[bytes]) -> None:
        """Append bytes of the file of ``digest`` from ``offset`` on, and store it when all ``size`` bytes have arrived.

        Raises:
            FaultError: its content is different; or a part was lost on the way, and what has arrived is kept.
            StorageError: the disk is full.
        """
        place = self.file(digest)
        with storage_errors(self.home):
            place.parent.mkdir(parents=True, exist_ok=True)
            if receive(place, token, digest, size, offset, content):
                return
        arrived = arrived_bytes(place, token)
        what = f"has {arrived} of its {size} bytes" if arrived else f"has {size} bytes, with another SHA-256"
        raise FaultError(
            f"A file arrived damaged or incomplete: it {what}.",
            "The connection may have been cut. Run the command again.",
        )

    def job(self, name: str) -> Path:
        """The folder of a job."""
        if not SHA256.fullmatch(name):
            raise FaultError(f"{name!r} is not the name of a job.")
        return self.home / "jobs" / name

    def tidy(self) -> None:
        """Delete files and jobs that have not been used for a long time, and leftovers of killed uploads.

        Nothing is deleted while a job runs: if the clock was changed, its files may look old.
        """
        now, jobs = time.time(), list((self.home / "jobs").glob("*"))
        if any(is_locked(folder / LOCK) for folder in jobs):
            return
        # Jobs whose hosts never came back, and engines that ONNX Runtime keeps.
        for folder in (*jobs, *(self.home / "ort-engines").glob("*")):
            with suppress(FileNotFoundError):
                if now - folder.stat().st_mtime > UNUSED_S:
                    shutil.rmtree(str(folder), ignore_errors=True)
        kept = [path for place in ("files", "engines", "openvino") for path in (self.home / place).glob("*")]
        for path in (*kept, *self.home.glob("agent-*"), *self.home.glob(".agent-*")):
            with suppress(FileNotFoundError):
                age_s = now - path.stat().st_mtime
                if age_s > (DAY_S if path.name.endswith(".part") else UNUSED_S):
                    path.unlink()


@contextmanager
def storage_errors(home: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that says how much space is left around ``home``."""
    try:
        yield
    except OSError as error:
        there = next(folder for folder in (home, *home.parents) if folder.is_dir())
        free = shutil.disk_usage(there).free
        raise StorageError(
            f"{home} could not be written: {error.strerror or error}; {free / 2**20:.0f} MiB are free there.",
            "Free some space on the device, or store its files elsewhere: "
            "catro-deploy device add NAME --force --folder PATH",
        ) from None
