"""Ways to have the agent do a job: in a process on this machine, or over ssh on one of the user's devices."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from catro_deploy.device.process import run_job as run_here
from catro_deploy.devices import HERE, find_device
from catro_deploy.transports.ssh import run_far

__all__ = ["run_job"]


def run_job(
    device: str,
    job: Mapping[str, Any],
    folder: Path,
    files: Sequence[str],
    *,
    limit_s: float = 3600,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """Have ``device`` (HERE: this machine) do ``job`` with the ``files`` of ``folder``; yield its events.

    The last one is its ``result``. However it ends, nothing of the job runs on afterwards; but if the connection is
    lost or this process is killed, a job far away goes on, and the same job asked for again picks it up. ``note`` is
    told what the user should know on the way.

    Raises:
        TargetError: there is no such device.
        DeviceError: it cannot be reached, or refuses.
        CatroError: the agent reported it.
        FaultError: the agent crashed, or took longer than ``limit_s`` seconds.
    """
    if device == HERE:
        events = run_here({**job, "folder": str(folder)}, limit_s)
    else:
        events = run_far(find_device(device), job, folder, files, limit_s, note)
    for event in events:
        if event["event"] == "note":
            note(event["text"])
        else:
            yield event
