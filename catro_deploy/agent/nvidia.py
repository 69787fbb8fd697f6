"""The GPUs of a computer as reported by nvidia-smi (which Jetsons do not have)."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from catro_deploy.agent.device import GpuState

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["gpus", "number", "nvidia_smi"]

PATIENCE_S = 20
# Harmless reasons for a lower clock: idle, or a user's setting.
HARMLESS = ("gpu_idle", "applications_clocks_setting", "display_clocks_setting")
# These depend on the driver: gpu_power_readings since 530, an instantaneous power next to the average since 545.
POWER = ("gpu_power_readings", "power_readings")
DRAWS = ("instant_power_draw", "power_draw", "average_power_draw")


def gpus(command: Sequence[str] = ("nvidia-smi", "-q", "-x")) -> list[GpuState]:
    """The GPUs of this computer in their present state; empty if nvidia-smi is missing or does not work."""
    try:
        done = subprocess.run(list(command), capture_output=True, check=False, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return nvidia_smi(done.stdout) if done.returncode == 0 else []


def nvidia_smi(xml: bytes) -> list[GpuState]:
    """The GPUs in the output of ``nvidia-smi -q -x``; empty if ``xml`` is something else. Missing values are None."""
    try:
        log = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return []
    return [_gpu(gpu, log.findtext("driver_version"), log.findtext("cuda_version")) for gpu in log.iter("gpu")]


def _gpu(gpu: ElementTree.Element, driver: str | None, cuda: str | None) -> GpuState:
    draws = [gpu.findtext(f"{group}/{draw}") for group in POWER for draw in DRAWS]
    return GpuState(
        name=gpu.findtext("product_name"),
        driver=driver,
        cuda=cuda,
        clock_mhz=number(gpu.findtext("clocks/sm_clock")),
        memory_clock_mhz=number(gpu.findtext("clocks/mem_clock")),
        highest_clock_mhz=number(gpu.findtext("max_clocks/sm_clock")),
        temperature_c=number(gpu.findtext("temperature/gpu_temp")),
        power_w=next((watts for watts in map(number, draws) if watts is not None), None),
        throttled=tuple(_reasons(gpu)),
    )


def _reasons(gpu: ElementTree.Element) -> list[str]:
    found = []
    for prefix in ("clocks_event_reason", "clocks_throttle_reason"):
        for reason in gpu.iterfind(f"{prefix}s/*"):
            name = reason.tag[len(prefix) + 1 :]
            if reason.text == "Active" and name not in HARMLESS:
                found.append(name)
    return found


def number(text: str | None) -> float | None:
    """67.03 for ``67.03 W``; None for ``N/A``."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None
