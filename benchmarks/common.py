"""What every benchmark needs: its environment, a table, a fresh process, and a place for its results."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import provenance
from catro_deploy.files import write_json

__all__ = [
    "CHECKOUT",
    "DOCS",
    "RESULTS",
    "environment",
    "in_fresh_process",
    "peak_memory_bytes",
    "processor",
    "read_result",
    "table",
    "times_ms",
    "write_result",
]

CHECKOUT = Path(__file__).resolve().parents[1]
DOCS = CHECKOUT / "docs"
RESULTS = Path(__file__).parent / "results"


def processor() -> str:
    """What this machine's processor calls itself."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()


def environment() -> dict[str, Any]:
    """Where and with what a benchmark runs."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "date": time.strftime("%Y-%m-%d"),
    }


def peak_memory_bytes() -> int:
    """The most memory that this process has held so far, mapped files counted."""
    # Not getrusage: its figure is inherited from the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024


def times_ms(ways: Sequence[Callable[[], object]], turns: int) -> list[list[float]]:
    """What each of ``ways`` takes, by turn, after two turns that warm up."""
    found: list[list[float]] = []
    for _ in range(2 + turns):
        found.append([])
        for way in ways:
            began = time.perf_counter()
            way()
            found[-1].append((time.perf_counter() - began) * 1e3)
    return found[2:]


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def in_fresh_process(module: str, *arguments: str) -> dict[str, Any]:
    """The JSON object on the last line that ``python -m module`` prints, run with ``arguments``."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_result(name: str, content: dict[str, Any]) -> None:
    """Write ``content`` to benchmarks/results/``name``; rows that are new or changed get a stamp of their code."""
    if made := provenance.stamp():
        provenance.stamp_(content, read_result(name), made)
    write_json(RESULTS / name, content)


def read_result(name: str) -> dict[str, Any]:
    """Read what an earlier run wrote, or nothing."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.is_file() else {}
