"""The device and its state.

A fact that cannot be read is None; none is guessed. Most need Linux; elsewhere fewer facts are available, and nothing
fails.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

from catro_deploy.agent.device import DeviceFacts, DeviceState
from catro_deploy.agent.jetson import jetson_facts, jetson_state
from catro_deploy.agent.nvidia import gpus

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LoadMeter", "device_facts", "state"]

# Those that determine the speed of a convolution, by their names in /proc/cpuinfo on x86 and on Arm.
# fmt: off
INSTRUCTION_SETS = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimdhp", "asimddp", "i8mm",
    "bf16", "sve", "sve2",
)
# fmt: on


def device_facts(root: Path = Path("/")) -> DeviceFacts:
    """What stays the same while a measurement runs. ``root`` is the folder that contains proc, sys and etc."""
    cpu = _cpuinfo(root)
    flags = cpu.get("flags", cpu.get("Features"))
    sets = None if flags is None else tuple([name for name in INSTRUCTION_SETS if name in flags.split()])
    return DeviceFacts(
        device=_read(root / "sys/class/dmi/id/product_name") or _read(root / "proc/device-tree/model"),
        cpu_model=cpu.get("model name"),
        cores=os.cpu_count(),  # all cores, not only those of this process: the load also refers to all
        instruction_sets=sets,
        governor=_read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        highest_clock_mhz=_mhz(_read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq")),
        memory_bytes=_memory_bytes(root),
        os=_os_name(root),
        kernel=platform.release() or None,
        python=platform.python_version(),
        jetson=jetson_facts(root),
        gpus=tuple([f"{gpu.name}, driver {gpu.driver}" for gpu in gpus()]) or None,
    )


def state(root: Path = Path("/")) -> DeviceState:
    """What changes: clock in MHz, degrees Celsius by sensor, load average of the last minute, and GPUs, if any."""
    return DeviceState(
        clock_mhz=_clock_mhz(root),
        temperatures_c=_temperatures_c(root),
        load_average=_load_average(),
        jetson=jetson_state(root),
        gpus=tuple(gpus()) or None,
    )


class LoadMeter:
    """How many cores other processes keep busy from now on, from the kernel's accounting of CPU time."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._start = self._now()

    def other_load_cores(self) -> float | None:
        """Cores that others kept busy on average since the start, including stolen time; None if not known."""
        now = self._now()
        if self._start is None or now is None:
            return None
        wall, busy, own = (after - before for after, before in zip(now, self._start))  # noqa: B905 - Python 3.10
        return max(busy - own, 0.0) / wall if wall > 0 else None

    def _now(self) -> tuple[float, float, float] | None:
        fields = (_read(self._root / "proc/stat") or "").split("\n")[0].split()
        if len(fields) < 9 or fields[0] != "cpu":
            return None
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy, time.process_time()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n") or None
    except OSError:
        return None


def _cpuinfo(root: Path) -> Mapping[str, str]:
    """The first processor in /proc/cpuinfo."""
    first = (_read(root / "proc/cpuinfo") or "").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.split("\n"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _memory_bytes(root: Path) -> int | None:
    for line in (_read(root / "proc/meminfo") or "").split("\n"):
        fields = line.split()
        if len(fields) == 3 and fields[0] == "MemTotal:":
            return int(fields[1]) * 1024
    return None


def _os_name(root: Path) -> str | None:
    for line in (_read(root / "etc/os-release") or "").split("\n"):
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip("\"'")
    return platform.system() or None


def _clock_mhz(root: Path) -> float | None:
    exact = _mhz(_read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"))
    try:
        return exact or float(_cpuinfo(root)["cpu MHz"])
    except (KeyError, ValueError):
        return None


def _mhz(khz: str | None) -> float | None:
    return int(khz) / 1000 if khz and khz.isdigit() else None


def _temperatures_c(root: Path) -> dict[str, float] | None:
    found = {}
    for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
        reading = _read(zone / "temp")
        if reading is not None and reading.lstrip("-").isdigit():
            found[f"{zone.name} {_read(zone / 'type') or ''}".strip()] = int(reading) / 1000
    return found or None


def _load_average() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None
