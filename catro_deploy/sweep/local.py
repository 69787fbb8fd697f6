"""The engine for one machine: a process for each step, side by side as far as cores, GPUs and memory allow.

Only one step at a time measures on a device, and while a step measures on this machine itself, no other step runs.
"""

import os
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from catro_deploy.errors import SettingsError
from catro_deploy.sweep.cells import Cell
from catro_deploy.sweep.engine import Job
from catro_deploy.sweep.orders import Event, running
from catro_deploy.sweep.steps import STEPS
from catro_deploy.units import counted

__all__ = ["LocalEngine", "available_bytes", "local_engine"]

GIB = 2**30
CPUS = 4
"""Default number of cores per cell: small networks do not run faster on more."""
UNKNOWN_BYTES = 3 * GIB
"""Memory that a step is assumed to need before one has finished."""
SPARE = 1.25
LAST = ("end", "error", "killed", "lost")
MEMORY = Path("/proc/meminfo")


class LocalEngine:
    """Runs ``jobs`` steps side by side, on ``cpus`` cores each; if there are ``gpus``, every step has one of them."""

    def __init__(self, jobs: int, cpus: int, gpus: Sequence[str] = ()) -> None:
        self._jobs, self._cpus = jobs, cpus
        self._free_gpus = list(gpus)
        self._has_gpus = bool(gpus)
        self._running: dict[Job, str | None] = {}
        self._events: queue.Queue[tuple[Job, Event]] = queue.Queue()
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._peak_bytes = 0

    def fits(self, job: Job) -> bool:
        """Whether a slot and the device are free, and memory is sufficient; always true if nothing is running."""
        if not self._running:
            return True
        if job.needs.here or len(self._running) >= self._jobs:
            return False
        others = [other.needs for other in self._running]
        if any(other.here or (other.device and other.device == job.needs.device) for other in others):
            return False
        return available_bytes() >= SPARE * (self._peak_bytes or UNKNOWN_BYTES)

    def start(self, job: Job) -> None:
        """Start a process for ``job``; its GPU is one that no other job holds."""
        gpu = self._free_gpus.pop(0) if self._free_gpus and not job.needs.here else None
        self._running[job] = gpu
        thread = threading.Thread(target=self._follow, args=(job, gpu), daemon=True)
        self._threads.append(thread)
        thread.start()

    def next(self) -> tuple[Job, Event]:
        """Wait for the next event of a job."""
        job, event = self._events.get()
        if event["event"] in LAST:
            gpu = self._running.pop(job)
            self._free_gpus += [gpu] if gpu is not None else []
            self._peak_bytes = max(self._peak_bytes, event.get("peak_bytes", 0))
        return job, event

    def stop(self) -> None:
        """Stop all processes."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _follow(self, job: Job, gpu: str | None) -> None:
        ahead = tuple(name for step in STEPS for name in step.stages)
        with running(replace(job.order, ahead=ahead), self._environment(job, gpu), self._stopping) as events:
            for event in events:
                self._events.put((job, event))

    def _environment(self, job: Job, gpu: str | None) -> dict[str, str]:
        """Weights also depend on the number of threads: it is the same for each step, whatever else runs."""
        threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(self._cpus)}
        return threads | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else {})


def local_engine(cells: Sequence[Cell], cpus: int | None, gpus: float | None) -> LocalEngine:
    """An engine for ``cells`` on this machine, with ``cpus`` cores and ``gpus`` GPUs for each; default: 1 GPU if any.

    Raises:
        SettingsError: this machine has fewer cores.
    """
    cores = len(os.sched_getaffinity(0))
    if cpus is not None and cpus > cores:
        raise SettingsError(
            f"A cell is to use {counted(cpus, 'core')}, but this machine has {cores}.", f"Ask for {cores} or fewer."
        )
    each = cpus or min(CPUS, cores)
    slots = _gpu_slots(1.0 if gpus is None else gpus) if _on_gpu(cells) else []
    jobs = cores // each
    return LocalEngine(min(jobs, len(slots)) if slots else jobs, each, slots)


def _on_gpu(cells: Sequence[Cell]) -> bool:
    return any(cell.settings.finetune.compute != "cpu" for cell in cells)


def _gpu_slots(each: float) -> list[str]:
    """The GPUs of this machine as CUDA_VISIBLE_DEVICES names them, each repeated for the steps that may share it."""
    import torch

    count = torch.cuda.device_count() if each else 0
    named = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    gpus = named[:count] if named else [str(place) for place in range(count)]
    return gpus * max(1, int(1 / each)) if gpus else []


def available_bytes() -> int:
    """The memory available to new processes; practically unlimited if the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        for line in MEMORY.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 2**62
