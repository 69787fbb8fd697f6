"""Jobs on a device over ssh, and the device's processes."""

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from catro_deploy.agent.jobs import FactsJob, Job, ModelJob, ProfileJob, R, read_result
from catro_deploy.transports.registry import Device
from catro_deploy.transports.ssh import run_far

FACTS = FactsJob("onnxruntime")


class Far:
    """Runs jobs on a device and keeps their notes."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.notes: list[str] = []

    def events(self, job: Job, folder: Path = Path(), limit_s: float = 120) -> Generator[dict[str, Any]]:
        names = [model.file for model in job.models.values()] if isinstance(job, ModelJob) else []
        if isinstance(job, ProfileJob):
            names = [job.reference, *(variant.file for variant in job.variants)]
        return run_far(self.device, job, folder, names, limit_s, self.notes.append)

    def result(self, job: Job[R], folder: Path = Path(), limit_s: float = 120) -> R:
        return read_result(job, list(self.events(job, folder, limit_s))[-1]["result"])


def processes_below(home: Path) -> list[int]:
    """Ids of the processes that the device runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(home).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def is_gone(home: Path) -> bool:
    deadline = time.monotonic() + 60
    while processes_below(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not processes_below(home)
