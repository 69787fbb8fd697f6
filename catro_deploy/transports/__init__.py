"""Ways to run a job of the agent: in a process on this machine, over ssh on one of the user's devices, or by hand.

A device is a string: HERE, the name of a device, or the path of a file of results that was carried back.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from catro_deploy.agent.events import Event, Note
from catro_deploy.agent.jobs import BenchJob, Job, ProfileJob, R, Workspace, read_result
from catro_deploy.agent.locks import alone
from catro_deploy.agent.process import job_events
from catro_deploy.agent.wire import read
from catro_deploy.errors import FaultError, StorageError
from catro_deploy.resources import cache_folder
from catro_deploy.runs.folder import RunFolder
from catro_deploy.transports.bundle import answer
from catro_deploy.transports.registry import HERE, find_device
from catro_deploy.transports.ssh import run_far

__all__ = ["device_of", "is_carried", "reached", "require_cache", "run_job"]

LOCK = "device.lock"
CARRIED = "/"
"""Occurs in every absolute path of a file of results, and in no device's name."""


def device_of(device: str, run: RunFolder) -> str:
    """Where the jobs of ``run`` run: on ``device``, except those whose results were carried back."""
    return str(run.carried.absolute()) if run.carried.is_file() else device


def is_carried(device: str) -> bool:
    """Whether ``device`` is a file of results, which hold one measurement only."""
    return CARRIED in device


def reached(device: str) -> str:
    """How the device is reached, in words."""
    if device == HERE:
        return "this machine"
    return "another device, by a bundle" if is_carried(device) else f"{device}, by ssh to {find_device(device).ssh}"


def run_job(
    device: str,
    job: Job[R],
    folder: Path,
    files: Sequence[str],
    *,
    limit_s: float = 3600,
    note: Callable[[str], None] = lambda text: None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> R:
    """Run ``job`` on ``device`` with the ``files`` of ``folder``; return its result.

    ``on_event`` is called with its events, ``note`` with messages for the user. When this returns or raises, the job
    has finished; but if the connection is lost or this process is killed, a remote job continues, and the next call
    with the same job picks it up.

    Raises:
        TargetError: there is no such device.
        DeviceError: it cannot be reached, or it refuses the call.
        CatroError: the agent reported it.
        FaultError: the agent crashed, or took longer than ``limit_s`` seconds.
        RunFolderError: the results that were carried back are damaged, or belong to another job.
        MessageError: an event or the result is damaged, or has another version.
    """
    events: Generator[dict[str, Any], None, None]
    if is_carried(device):
        events = answer(Path(device), job, folder, files)
    elif device == HERE:
        events = _here(job, folder, limit_s, note)
    else:
        events = run_far(find_device(device), job, folder, files, limit_s, note)
    with closing(events):
        for message in events:
            if message["event"] == "result":
                return read_result(job, message.get("result"))
            event = read(Event, message)
            if isinstance(event, Note):
                note(event.text)
            else:
                on_event(event)
    raise FaultError("The device's agent ended without a result.", "Run it again. See what works: catro-deploy doctor")


def require_cache() -> None:
    """Check that the cache folder can be written, as measuring on this machine requires.

    Raises:
        StorageError: it cannot.
    """
    home = cache_folder()
    with _cache_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        with (home / LOCK).open("a"):
            pass


@contextmanager
def _cache_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"{home} could not be written: {error.strerror or error}."
        raise StorageError(problem, "Set the variable CATRO_CACHE to another folder.") from None


def _here(
    job: Job[Any], folder: Path, limit_s: float, note: Callable[[str], None]
) -> Generator[dict[str, Any], None, None]:
    """The events of ``job`` on this machine; a job that measures time runs alone, whichever process requested it.

    Raises:
        StorageError: the cache folder cannot be written.
    """
    home = cache_folder()
    with ExitStack() as stack:
        if isinstance(job, BenchJob | ProfileJob):
            lock = alone(home / LOCK, f"process {os.getpid()}", lambda who: note(_waiting(who)))
            with _cache_errors(home):
                home.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock)
        yield from job_events(job, Workspace(str(folder), str(home)), limit_s)


def _waiting(who: str) -> str:
    """What this process waits for: ``who``, such as ``process 7``, which may have been stopped by Ctrl-Z."""
    pid = who.rpartition(" ")[2]
    try:
        state = Path("/proc", pid, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        state = ""
    stopped = f", but is stopped; continue it (kill -CONT {pid}) or end it" if state == "T" else ""
    return f"waiting: {who} is measuring here{stopped}"
