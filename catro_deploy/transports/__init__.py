"""Ways to have the agent do a job: in a process on this machine, over ssh on one of the user's devices, or by hand.

Where, is a text: HERE, the name of a device, or the path of a file of results that were carried back from one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from catro_deploy.agent.process import run_job as run_here
from catro_deploy.resources import cache_folder
from catro_deploy.runs.folder import RunFolder
from catro_deploy.transports.bundle import answer
from catro_deploy.transports.registry import HERE, find_device
from catro_deploy.transports.ssh import run_far

__all__ = ["device_of", "reached", "run_job"]

CARRIED = ".json"
"""What a file of results ends with, and no device's name."""


def device_of(device: str, run: RunFolder) -> str:
    """Where the jobs of ``run`` are done: on ``device``, but for those whose results were carried back."""
    return str(run.carried.absolute()) if run.carried.is_file() else device


def reached(device: str) -> str:
    """How that is reached, in words."""
    if device == HERE:
        return "this machine"
    return "by hand" if device.endswith(CARRIED) else f"{device}, by ssh to {find_device(device).ssh}"


def run_job(
    device: str,
    job: Mapping[str, Any],
    folder: Path,
    files: Sequence[str],
    *,
    limit_s: float = 3600,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """Have ``device`` do ``job`` with the ``files`` of ``folder``; yield its events.

    The last one is its ``result``. However it ends, nothing of the job runs on afterwards; but if the connection is
    lost or this process is killed, a job far away goes on, and the same job asked for again picks it up. ``note`` is
    told what the user should know on the way.

    Raises:
        TargetError: there is no such device.
        DeviceError: it cannot be reached, or refuses.
        CatroError: the agent reported it.
        FaultError: the agent crashed, or took longer than ``limit_s`` seconds.
        RunFolderError: the results that were carried back are damaged, or of another job.
    """
    if device.endswith(CARRIED):
        events = answer(Path(device), job, folder, files)
    elif device == HERE:
        events = run_here({**job, "folder": str(folder), "home": str(cache_folder())}, limit_s)
    else:
        events = run_far(find_device(device), job, folder, files, limit_s, note)
    for event in events:
        if event["event"] == "note":
            note(event["text"])
        else:
            yield event
