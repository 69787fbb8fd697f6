"""The clock of a Jetson's GPU, from the kernel's devfreq, which every user can read."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["gpu_clock_mhz"]

# 17000000.gpu of an Orin, 17000000.ga10b of one with an older kernel, gpu-gpc-0 of a Thor. Others are video engines.
GPU = re.compile(r".*\.(gpu|gm20b|gp10b|gv11b|ga10b)|gpu-gpc-\d+")


def gpu_clock_mhz(which: str, root: Path = Path("/")) -> float | None:
    """The current clock (``cur``), or the limits of the governor (``min``, ``max``); None if there is none.

    A power mode and overheating lower ``max``.
    """
    for device in sorted((root / "sys/class/devfreq").glob("*")):
        if GPU.fullmatch(device.name):
            try:
                return int((device / f"{which}_freq").read_text()) / 1e6
            except (OSError, ValueError):
                continue
    return None
