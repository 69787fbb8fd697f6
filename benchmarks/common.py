"""Functions shared by all benchmarks: environment, tables, fresh processes, and storage of results."""

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
    """The model name that this machine's processor reports."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()


def environment() -> dict[str, Any]:
    """The machine, software versions and date of a benchmark."""
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
    """Peak memory of this process so far, including mapped files."""
    # Not getrusage: its value is inherited from the parent process.
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024


def times_ms(ways: Sequence[Callable[[], object]], turns: int) -> list[list[float]]:
    """Milliseconds of each of ``ways``, by turn, after two warm-up turns."""
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
    """Run ``python -m module`` with ``arguments`` and return the JSON object on the last line that it prints."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_result(name: str, content: dict[str, Any]) -> None:
    """Write ``content`` to benchmarks/results/``name``; new and changed rows get a stamp of their code."""
    if made := provenance.stamp():
        provenance.stamp_(content, read_result(name), made)
    write_json(RESULTS / name, content)


def read_result(name: str) -> dict[str, Any]:
    """Read what an earlier run wrote; empty if there is no such file."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.is_file() else {}
