"""A device and its state, as reported in results. What cannot be read is None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from catro_deploy.agent.wire import to_json

__all__ = [
    "ClockRange",
    "DeviceFacts",
    "DeviceState",
    "GpuState",
    "JetsonFacts",
    "JetsonState",
    "MeasuredClocks",
    "flat",
]


@dataclass(frozen=True)
class JetsonFacts:
    """Facts that only a Jetson has; some of them can be read by root only."""

    l4t: Optional[str]
    power_mode: Optional[str]
    gpu_clock_range_mhz: Optional[Tuple[float, float]]
    gpu_sms: Optional[int]


@dataclass(frozen=True)
class JetsonState:
    """The state of a Jetson: the GPU's clock, watts by rail, and how often current was limited since it started."""

    gpu_clock_mhz: Optional[float]
    power_w: Optional[Mapping[str, float]]
    overcurrent_events: Optional[int]


@dataclass(frozen=True)
class DeviceFacts:
    """What stays the same while a measurement runs. ``gpus`` are those that nvidia-smi lists."""

    device: Optional[str]
    cpu_model: Optional[str]
    cores: Optional[int]
    instruction_sets: Optional[Tuple[str, ...]]
    governor: Optional[str]
    highest_clock_mhz: Optional[float]
    memory_bytes: Optional[int]
    os: Optional[str]
    kernel: Optional[str]
    python: str
    jetson: Optional[JetsonFacts] = None
    gpus: Optional[Tuple[str, ...]] = None


@dataclass(frozen=True)
class GpuState:
    """A GPU as reported by nvidia-smi; ``throttled`` are the reasons for a lowered clock, except harmless ones."""

    name: Optional[str]
    driver: Optional[str]
    cuda: Optional[str]
    clock_mhz: Optional[float]
    memory_clock_mhz: Optional[float]
    highest_clock_mhz: Optional[float]
    temperature_c: Optional[float]
    power_w: Optional[float]
    throttled: Tuple[str, ...]


@dataclass(frozen=True)
class DeviceState:
    """What changes: the clock, temperatures by sensor, and the load average of the last minute."""

    clock_mhz: Optional[float]
    temperatures_c: Optional[Mapping[str, float]]
    load_average: Optional[float]
    jetson: Optional[JetsonState] = None
    gpus: Optional[Tuple[GpuState, ...]] = None


@dataclass(frozen=True)
class ClockRange:
    """A clock in MHz, read ``samples`` times during a measurement; ``allowed`` is the maximum that it may reach."""

    lowest: float
    median: float
    highest: float
    allowed: Optional[float]
    samples: int


@dataclass(frozen=True)
class MeasuredClocks:
    """Clocks of the GPU, or of the CPU if networks ran there, during a measurement, and the reasons for throttling."""

    clocks_mhz: Mapping[str, ClockRange]
    throttled: Tuple[str, ...]


def flat(found: Union[DeviceFacts, DeviceState]) -> Dict[str, Any]:
    """``found`` as one flat JSON object, including a Jetson's own facts."""
    content = to_json(found)
    jetson = content.pop("jetson", {})
    return {**content, **jetson}
