"""NVIDIA's own benchmark tool for engines, ``trtexec``, run where it is installed, for a second opinion.

It times one engine at a time, so the report is based on turns in one process (see ``measure``); but the two must agree.
Its defaults differ between versions: every relevant flag that all versions accept is given.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catro_deploy.errors import FaultError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["compute_times_us", "faults", "find_trtexec", "trtexec_times_us", "version"]

# Where TensorRT's packages install it, outside of the PATH.
USUAL_PLACES = ("/usr/src/tensorrt/bin/trtexec", "/usr/local/tensorrt/bin/trtexec")
# Without transfers and as a CUDA graph: the flags of every version can express this, since each only enables something.
FLAGS = (
    "--warmUp=200", "--iterations=100", "--duration=3", "--avgRuns=10", "--infStreams=1", "--noDataTransfers",
    "--useCudaGraph", "--useSpinWait",
)  # fmt: skip
MODE = {"transfers": False, "cuda_graph": True}
LIMIT_S = 120
LAST_FAULTS = 6


def find_trtexec() -> str | None:
    """The path of trtexec, None if it is not installed."""
    return shutil.which("trtexec") or next((place for place in USUAL_PLACES if Path(place).is_file()), None)


def trtexec_times_us(binary: str, engine: Path, shapes: str) -> tuple[list[float], str]:
    """Compute times of single inferences of ``engine`` in microseconds, and the version of ``binary``.

    ``shapes`` are those of the input, such as ``image:1x3x32x32``; empty if the engine has only one.

    Raises:
        FaultError: trtexec failed.
    """
    with tempfile.TemporaryDirectory(prefix="catro-deploy-trtexec-") as folder:
        times = Path(folder) / "times.json"
        command = [binary, f"--loadEngine={engine}", *FLAGS, f"--exportTimes={times}"]
        command += [f"--shapes={shapes}"] if shapes else []
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FaultError(f"trtexec did not work: {error}") from None
        if done.returncode or not times.is_file():
            raise FaultError("\n".join(["trtexec failed:", *faults(done.stdout + done.stderr)]))
        return compute_times_us(times.read_text(encoding="utf-8")), version(done.stdout)


def compute_times_us(text: str) -> list[float]:
    """The GPU's compute times in microseconds, from the output of ``--exportTimes``.

    Raises:
        FaultError: ``text`` is something else.
    """
    try:
        records: Sequence[dict[str, Any]] = json.loads(text)
        return [float(record["computeMs"]) * 1e3 for record in records]
    except (ValueError, TypeError, KeyError) as error:
        raise FaultError(f"trtexec wrote times that cannot be read ({type(error).__name__}: {error}).") from None


def version(log: str) -> str:
    """``10.16.1`` for ``[TensorRT v101601]``, and ``8.4.1`` for ``[TensorRT v8401]``; empty if the log has none."""
    found = re.search(r"\[TensorRT v(\d{4,6})\]", log)
    if not found:
        return ""
    digits, minor = found[1], 2 if len(found[1]) > 4 else 1
    return f"{digits[: -2 - minor]}.{int(digits[-2 - minor : -2])}.{int(digits[-2:])}"


def faults(log: str) -> list[str]:
    """The last errors in its log, without time and severity."""
    found = re.findall(r"\[E\] (?:\[TRT\] )?(.+)", log)
    return [line.strip() for line in found[-LAST_FAULTS:]]
