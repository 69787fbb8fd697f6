"""Which board a GPU is part of: all Jetsons of a generation have a GPU of the same name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

__all__ = ["board_identity", "power_mode"]

LIMIT_S = 10


def board_identity(root: Path = Path("/")) -> dict[str, str]:
    """The ``module`` of a Jetson and its ``power_mode``, as far as they can be read; empty on other computers.

    CUDA calls the GPU of every Orin module "Orin"; the power mode determines the clocks and the number of SMs.
    """
    found = {"module": _module(root), "power_mode": power_mode(_nvpmodel())}
    return {key: value for key, value in found.items() if value}


def power_mode(text: str) -> str | None:
    """The mode in the output of ``nvpmodel -q``, plain or verbose."""
    found = re.findall(r"NV Power Mode: *(\S+)", text)
    return found[-1] if found else None


def _module(root: Path) -> str | None:
    try:
        return (root / "proc/device-tree/model").read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n")
    except OSError:
        return None


def _nvpmodel() -> str:
    try:
        done = subprocess.run(("nvpmodel", "-q"), capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
