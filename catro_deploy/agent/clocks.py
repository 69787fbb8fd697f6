"""Clocks and throttling while networks are measured.

They are read between turns, when nothing is timed, about four times a second: a thread would compete with inferences
for Python's interpreter lock, and the time of a reading within a turn would count. Readings of nvidia-smi come from one
running process, since starting one takes long enough for a GPU to lower its clock.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from catro_deploy.agent.devfreq import gpu_clock_mhz
from catro_deploy.agent.device import ClockRange, MeasuredClocks
from catro_deploy.agent.nvidia import HARMLESS, number
from catro_deploy.agent.nvidia_query import NVIDIA_SMI, nvidia_query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from catro_deploy.agent.nvidia_query import NvidiaQuery
    from catro_deploy.agent.results import BenchFacts

__all__ = ["ClockWatch", "clock_remarks", "watched_clocks"]

EVERY_S, EVERY_MS = 0.25, 250
# Newer drivers call them event reasons, older ones throttle reasons.
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
FIELDS = ("clocks.sm", "clocks.max.sm", *REASONS)
# From nvml.h.
REASON_BITS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
# Smaller relative differences between clocks are ignored; CPU clocks change with the load of other cores.
GPU_CHANGE, CPU_CHANGE = 0.02, 0.1


class ClockWatch:
    """Clocks of the GPU, or of the CPU if networks run there, since a measurement began."""

    def __init__(self, root: Path, query: NvidiaQuery | None, *, gpu: bool) -> None:
        self._root, self._query, self._gpu = root, query, gpu
        self._read: dict[str, list[float]] = {}
        self._highest: dict[str, float] = {}
        self._throttled: set[str] = set()
        self._thermal_events = self._count_thermal_events()
        self._next_s = 0.0

    def sample(self, *, counts: bool) -> None:
        """Read the clocks, unless they were just read; readings during warm-up (not ``counts``) are dropped."""
        if time.monotonic() >= self._next_s:
            self._sample(counts=counts)
            self._next_s = time.monotonic() + EVERY_S

    def found(self) -> MeasuredClocks:
        """The readings, with a last one taken now; to be called after the last turn."""
        self._sample(counts=True)
        if self._count_thermal_events() > self._thermal_events:
            self._throttled.add("cpu_thermal")
        clocks = {name: _range(read, self._highest.get(name)) for name, read in self._read.items()}
        return MeasuredClocks(clocks, tuple(sorted(self._throttled)))

    def _sample(self, *, counts: bool) -> None:
        if not self._gpu:
            current, highest = _cpu_clock_mhz(self._root)
            self._note("CPU", current, highest, counts=counts)
            return
        self._note("GPU", gpu_clock_mhz("cur", self._root), gpu_clock_mhz("max", self._root), counts=counts)
        for reading in self._query.readings() if self._query else ():
            self._note("GPU", number(reading.get(FIELDS[0])), number(reading.get(FIELDS[1])), counts=counts)
            if counts:
                self._throttled.update(_reasons(reading))

    def _note(self, name: str, current: float | None, highest: float | None, *, counts: bool) -> None:
        if highest is not None:  # overheating lowers it: the earlier value is kept
            self._highest[name] = max(highest, self._highest.get(name, 0.0))
        if counts and current is not None:
            self._read.setdefault(name, []).append(current)

    def _count_thermal_events(self) -> int:
        """How often cores of an x86 processor were throttled since the computer started."""
        pattern = "cpu[0-9]*/thermal_throttle/*_throttle_count"
        return sum(_integer(path) or 0 for path in (self._root / "sys/devices/system/cpu").glob(pattern))


@contextmanager
def watched_clocks(*, gpu: bool, root: Path = Path("/"), program: str = NVIDIA_SMI) -> Iterator[ClockWatch]:
    """Watch clocks during the block: those of the ``gpu``, or else of the CPU."""
    if not gpu:
        yield ClockWatch(root, None, gpu=False)
        return
    with nvidia_query(FIELDS, EVERY_MS, program) as query:
        yield ClockWatch(root, query, gpu=True)


def clock_remarks(facts: BenchFacts, *, gpu: bool) -> list[str]:
    """Warnings about clocks that were lowered during the measurement; those of a GPU if networks ran there."""
    found = []
    before, after, during = facts.before.jetson, facts.after.jetson, facts.during
    reasons = sorted({reason for state in facts.after.gpus or () for reason in state.throttled}) if gpu else []
    if during and during.throttled:
        found.append(f"The clock was throttled during the measurement: {', '.join(during.throttled)}.")
    elif reasons:
        found.append(f"The GPU's clock was lowered when the measurement ended: {', '.join(reasons)}.")
    first, last = (state.overcurrent_events if state else None for state in (before, after))
    if first is not None and last is not None and last > first:
        found.append(f"The board throttled {last - first} times during the measurement: it drew too much current.")
    remedy = "sudo jetson_clocks" if facts.device.jetson else "sudo nvidia-smi --lock-gpu-clocks"
    for name, clock in during.clocks_mhz.items() if during else ():
        found += _range_remarks(name, clock, remedy)
    if gpu and not (during and during.clocks_mhz):
        found += _change_remarks(*(state.gpu_clock_mhz if state else None for state in (before, after)))
    return found


def _range_remarks(name: str, clock: ClockRange, remedy: str) -> list[str]:
    span = f"{clock.lowest:g}" if clock.lowest == clock.highest else f"{clock.lowest:g} to {clock.highest:g}"
    if name == "CPU":
        if clock.lowest >= (1 - CPU_CHANGE) * clock.highest:
            return []
        return [f"The CPU's clock changed during the measurement: {span} MHz, median {clock.median:g} MHz."]
    if clock.allowed is None or clock.lowest >= (1 - GPU_CHANGE) * clock.allowed:
        return []
    return [
        f"The GPU's clock was below its maximum of {clock.allowed:g} MHz during the measurement: {span} MHz, median "
        f"{clock.median:g} MHz. Fix it: {remedy}"
    ]


def _change_remarks(start_mhz: float | None, end_mhz: float | None) -> list[str]:
    if not start_mhz or not end_mhz or abs(end_mhz / start_mhz - 1) <= GPU_CHANGE:
        return []
    return [f"The GPU's clock moved from {start_mhz:g} to {end_mhz:g} MHz: fix it with jetson_clocks."]


def _range(read_mhz: list[float], allowed_mhz: float | None) -> ClockRange:
    ascending = sorted(read_mhz)
    return ClockRange(ascending[0], ascending[(len(ascending) - 1) // 2], ascending[-1], allowed_mhz, len(ascending))


def _reasons(reading: dict[str, str]) -> list[str]:
    text = next((reading[field] for field in REASONS if field in reading), "")
    try:
        active = int(text, 16)
    except ValueError:  # [N/A]
        return []
    return [name for bit, name in REASON_BITS.items() if active & bit and name not in HARMLESS]


def _cpu_clock_mhz(root: Path) -> tuple[float | None, float | None]:
    """The highest current clock and the highest allowed clock of the cores that this process may use."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    folders = [root / f"sys/devices/system/cpu/cpu{core}/cpufreq" for core in cores]
    current, highest = (
        [mhz for mhz in (_integer(folder / f"scaling_{which}_freq") for folder in folders) if mhz is not None]
        for which in ("cur", "max")
    )
    return (max(current) / 1000 if current else None), (max(highest) / 1000 if highest else None)


def _integer(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
