"""Facts about a Jetson: release, power mode, clocks, power rails.

What cannot be read is None, or left out. A Jetson has no nvidia-smi for its GPU; its own programs are used.
"""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path
from typing import Any

from catro_deploy.agent.devfreq import gpu_clock_mhz
from catro_deploy.agent.device import JetsonFacts, JetsonState
from catro_deploy.runtimes.board import power_mode

__all__ = ["jetson_clocks", "jetson_facts", "jetson_state", "l4t_release", "power_mode", "tegrastats"]

PATIENCE_S = 10
SMS_PER_TPC = 2


def jetson_facts(root: Path = Path("/")) -> JetsonFacts | None:
    """What stays the same while a measurement runs; None on a computer that is not a Jetson.

    Only root can read the number of SMs; a power mode may switch some of them off.
    """
    release = _read(root / "etc/nv_tegra_release")
    if release is None:
        return None
    clocks = jetson_clocks(_output("jetson_clocks", "--show"))
    tpcs = clocks.get("gpu_tpcs")
    lowest, highest = (gpu_clock_mhz(which, root) for which in ("min", "max"))
    readable = None if lowest is None or highest is None else (lowest, highest)
    return JetsonFacts(
        l4t=l4t_release(release),
        power_mode=power_mode(_output("nvpmodel", "-q")),
        gpu_clock_range_mhz=clocks["gpu"][:2] if "gpu" in clocks else readable,
        gpu_sms=None if tpcs is None else SMS_PER_TPC * tpcs,
    )


def jetson_state(root: Path = Path("/")) -> JetsonState | None:
    """What changes while a measurement runs; None on a computer that is not a Jetson."""
    if not (root / "etc/nv_tegra_release").is_file():
        return None
    stats = tegrastats(_first_line("tegrastats", "--interval", "100"))
    clock_mhz = stats.get("gpu_clock_mhz")
    return JetsonState(
        gpu_clock_mhz=gpu_clock_mhz("cur", root) if clock_mhz is None else clock_mhz,
        power_w=stats["power_w"] or None,
        overcurrent_events=_overcurrent_events(root),
    )


def l4t_release(text: str) -> str | None:
    """``36.4.7`` from the first line of /etc/nv_tegra_release."""
    found = re.search(r"# R(\d+) \(release\), REVISION: ([\d.]+)", text)
    return f"{found[1]}.{found[2]}" if found else None


def jetson_clocks(text: str) -> dict[str, Any]:
    """The figures of ``jetson_clocks --show``.

    They are the ``gpu`` and ``emc`` clocks (lowest, highest, current, in MHz) and ``gpu_tpcs``.

    Thor's GPU has a line for each of its clocks; that of the GPC is used.
    """
    found: dict[str, Any] = {}
    pattern = r"^(GPU|gpu-gpc-0|EMC) +MinFreq=(\d+) +MaxFreq=(\d+) +CurrentFreq=(\d+)"
    for name, *hertz in re.findall(pattern, text, re.MULTILINE):
        found["emc" if name == "EMC" else "gpu"] = tuple(int(one) / 1e6 for one in hertz)
    if tpcs := re.search(r"^Active GPU TPCs: (\d+)", text, re.MULTILINE):
        found["gpu_tpcs"] = int(tpcs[1])
    return found


def tegrastats(line: str) -> dict[str, Any]:
    """One line of tegrastats: present ``temperatures_c`` and ``power_w`` by name, ``gpu_load`` and ``gpu_clock_mhz``.

    A rail's figures are now/average, since JetPack 7 now/average/peak, with or without the unit mW.
    """
    behind_memory = line.partition("CPU [")[2].partition("]")[2] or line
    temperatures = {name: float(c) for name, c in re.findall(r"(\w+)@(-?[\d.]+)C\b", behind_memory)}
    rails = {
        name: int(mw) / 1000 for name, mw in re.findall(r"\b([A-Z][A-Z0-9_]*) (\d+)(?:mW)?/\d+(?:mW)?", behind_memory)
    }
    found: dict[str, Any] = {"temperatures_c": temperatures, "power_w": rails}
    if gpu := re.search(r"GR3D_FREQ (?:(\d+)%)?(?:@\[?(\d+))?", line):
        found["gpu_load"] = int(gpu[1]) / 100 if gpu[1] else None
        found["gpu_clock_mhz"] = float(gpu[2]) if gpu[2] else None
    return found


def _overcurrent_events(root: Path) -> int | None:
    counts = [_read(path) for path in (root / "sys/class/hwmon").glob("hwmon*/oc*_event_cnt")]
    return sum(int(one) for one in counts if one and one.isdigit()) if counts else None


def _output(*command: str) -> str:
    """The output of a command; empty if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _first_line(*command: str) -> str:
    """The first line of a command that never exits; empty if it is missing or prints nothing."""
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            timer = threading.Timer(PATIENCE_S, process.kill)
            timer.start()
            assert process.stdout is not None
            line = process.stdout.readline()
            timer.cancel()
            process.kill()
            return line
    except OSError:
        return ""


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n") or None
    except OSError:
        return None
