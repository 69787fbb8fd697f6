"""What computes: an NVIDIA GPU with CUDA graphs, or this machine's CPU for a dry run. And timing things in turns."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from catro_deploy.agent.profile import low_mean

__all__ = ["CpuDevice", "Device", "GpuDevice", "Run", "Sample", "Timing", "ask_nvidia_smi", "interleaved", "settled"]

Run = Callable[[], object]

# Turns before and after a visit whose reference times count for it.
NEAR = 3
REFERENCE_RUNS = 3
LEAST_RUNS, MOST_RUNS = 5, 60

# fmt: off
QUERY = (
    "name", "uuid", "driver_version", "pstate", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem",
    "temperature.gpu", "power.draw", "power.limit", "utilization.gpu", "persistence_mode",
)
# fmt: on


class Device(Protocol):
    """Where networks run, and its clock."""

    torch_device: torch.device
    dtype: torch.dtype
    dry_run: bool

    def tune(self, on: bool) -> None:
        """Whether convolutions that are new try several kernels for the fastest."""

    def prepare(self, work: Run) -> Run:
        """Do ``work`` once; the same again, as fast as the device can be made to repeat it."""

    def times_us(self, run: Run, count: int) -> NDArray[np.float64]:
        """Microseconds of each of ``count`` runs."""

    def facts(self) -> dict[str, Any]:
        """What stays the same."""

    def state(self) -> dict[str, str] | None:
        """Clocks, power and temperature of now; None if nothing tells."""


@dataclass(frozen=True)
class _Replay:
    """A captured graph, and the work that holds the tensors which it reads."""

    graph: torch.cuda.CUDAGraph
    work: Run

    def __call__(self) -> None:
        self.graph.replay()


class GpuDevice:
    """The current CUDA device: fp16, CUDA graphs, events around each replay."""

    dtype = torch.float16
    dry_run = False

    def __init__(self) -> None:
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        # Graphs cannot be captured on the default stream.
        self._stream = torch.cuda.Stream()
        torch.cuda.set_stream(self._stream)
        self._pool = torch.cuda.graph_pool_handle()
        self._events = [[torch.cuda.Event(enable_timing=True) for _ in range(MOST_RUNS + 1)] for _ in range(2)]

    def tune(self, on: bool) -> None:
        """Let cuDNN try kernels, or trust its heuristics."""
        torch.backends.cudnn.benchmark = on

    def prepare(self, work: Run) -> Run:
        """Capture a graph; not by torch.cuda.graph, which empties the allocator's cache each time.

        All graphs share one pool of memory: they run one after the other, and nobody reads what they leave.
        """
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool)
        try:
            work()
        finally:
            graph.capture_end()
        graph.replay()
        torch.cuda.synchronize()
        return _Replay(graph, work)

    def times_us(self, run: Run, count: int) -> NDArray[np.float64]:
        """The GPU's own time between two events."""
        starts, ends = (events[:count] for events in self._events)
        for start, end in zip(starts, ends, strict=True):
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return np.array([start.elapsed_time(end) * 1000 for start, end in zip(starts, ends, strict=True)])

    def facts(self) -> dict[str, Any]:
        """GPU, driver and versions; what nvidia-smi would tell is None where it is missing."""
        card = torch.cuda.get_device_properties(self.torch_device)
        smi = self.state() or {}
        return {
            "gpu": card.name,
            "multiprocessors": card.multi_processor_count,
            "memory_bytes": card.total_memory,
            "l2_bytes": getattr(card, "L2_cache_size", None),
            "compute_capability": f"{card.major}.{card.minor}",
            "driver": smi.get("driver_version"),
            "power_limit_w": smi.get("power.limit"),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "cudnn_benchmark_limit": torch.backends.cudnn.benchmark_limit,
        }

    def state(self) -> dict[str, str] | None:
        """What nvidia-smi says of this GPU."""
        identity = str(getattr(torch.cuda.get_device_properties(self.torch_device), "uuid", "")).removeprefix("GPU-")
        found = ask_nvidia_smi(f"--id=GPU-{identity}") if identity else None
        return found if found or torch.cuda.device_count() > 1 else ask_nvidia_smi()


def ask_nvidia_smi(*which: str) -> dict[str, str] | None:
    """Driver, clocks, power and temperature; None where it is missing or knows no such GPU."""
    command = ["nvidia-smi", *which, f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    fields = [field.strip() for field in done.stdout.split("\n")[0].split(",")]
    return dict(zip(QUERY, fields, strict=True)) if len(fields) == len(QUERY) else None


class CpuDevice:
    """This machine's CPU in fp32, without graphs: to see that everything runs. Its times say nothing of a GPU."""

    dtype = torch.float32
    dry_run = True
    torch_device = torch.device("cpu")

    def tune(self, on: bool) -> None:
        """There is nothing to try."""

    def prepare(self, work: Run) -> Run:
        """Do ``work`` once."""
        work()
        return work

    def times_us(self, run: Run, count: int) -> NDArray[np.float64]:
        """Wall-clock time."""
        times_us = []
        for _ in range(count):
            start = time.perf_counter_ns()
            run()
            times_us.append((time.perf_counter_ns() - start) / 1000)
        return np.array(times_us)

    def facts(self) -> dict[str, Any]:
        """No GPU."""
        return {"gpu": None, "torch_threads": torch.get_num_threads()}

    def state(self) -> dict[str, str] | None:
        """The load of the last minute."""
        return {"load_average": f"{os.getloadavg()[0]:.2f}"}


@dataclass(frozen=True)
class Sample:
    """Microseconds in each round, and what the reference network took around it."""

    us: tuple[float, ...]
    reference_us: tuple[float, ...]


@dataclass(frozen=True)
class Timing:
    """Microseconds, and how far the rounds lie apart as a share of it."""

    us: float
    spread: float


def interleaved(
    runs: Sequence[Run], reference: Run, device: Device, rounds: int, block_us: float, generator: np.random.Generator
) -> list[Sample]:
    """Visit ``runs`` in random order, ``rounds`` times, for some ``block_us`` each, the reference before each visit."""
    counts = [int(np.clip(block_us / device.times_us(run, 2)[-1], LEAST_RUNS, MOST_RUNS)) for run in runs]
    times_us: list[list[float]] = [[] for _ in runs]
    turns: list[list[int]] = [[] for _ in runs]
    levels: list[float] = []
    for _ in range(rounds):
        for place in generator.permutation(len(runs)):
            levels.append(float(low_mean(device.times_us(reference, REFERENCE_RUNS + 1)[1:])))
            turns[place].append(len(levels) - 1)
            times_us[place].append(float(low_mean(device.times_us(runs[place], counts[place] + 1)[1:])))
    around = [float(np.median(levels[max(0, turn - NEAR) : turn + NEAR + 1])) for turn in range(len(levels))]
    return [Sample(tuple(us), tuple(around[turn] for turn in at)) for us, at in zip(times_us, turns, strict=True)]


def settled(samples: Sequence[Sample]) -> list[Timing]:
    """Divide out how the reference network drifted over all ``samples``; the medians of their rounds."""
    level_us = np.median([level for sample in samples for level in sample.reference_us])
    timings = []
    for sample in samples:
        rounds_us = np.array(sample.us) * level_us / np.array(sample.reference_us)
        middle = float(np.median(rounds_us))
        timings.append(Timing(middle, float(np.ptp(rounds_us) / middle)))
    return timings
