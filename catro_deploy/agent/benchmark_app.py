"""OpenVINO's own benchmark tool, ``benchmark_app``, which comes with it: a second opinion on the measurements.

It times one network at a time, so the report is based on turns in one process (see ``measure``); but the two must
agree. It runs with the same interpreter, with its telemetry disabled, and with all options that ``OvRunner`` sets.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from catro_deploy.errors import FaultError

if TYPE_CHECKING:
    from catro_deploy.runtimes.ov import OvRunner

__all__ = ["app_median_us", "faults", "median_us"]

# What ``keep_silent`` does, in a process that cannot import this package: on a device it is in the agent's file.
PROGRAM = """
import sys
sys.modules["openvino_telemetry"] = None
from openvino.tools.benchmark.main import main
main()
"""
SECONDS, LIMIT_S = 3, 180
LAST_LINES = 6


def app_median_us(runner: OvRunner, batch: int) -> float:
    """The median latency of the model of ``runner``, with ``batch`` images at a time, in microseconds.

    Raises:
        FaultError: it failed.
    """
    precision = runner.properties["INFERENCE_PRECISION_HINT"]
    shape = ",".join(map(str, (batch, *runner.image_shape)))
    command = [
        sys.executable, "-c", PROGRAM, "-m", str(runner.model), "-d", runner.device, "-hint", "none", "-api", "sync",
        "-nireq", "1", "-t", str(SECONDS), "-shape", f"[{shape}]", "-infer_precision", f"{runner.device}:{precision}",
        # Otherwise it treats an input with three channels as a picture, and feeds the network a different input.
        "-ip", "u8" if runner.input_type == "uint8" else "f32",
    ]  # fmt: skip
    if runner.device == "CPU":
        command += ["-nstreams", "1", "-nthreads", str(runner.threads), "-pin", "NO"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FaultError(f"benchmark_app did not work: {error}") from None
    if done.returncode:
        raise FaultError("\n".join(["benchmark_app failed:", *faults(done.stdout + done.stderr)]))
    return median_us(done.stdout)


def median_us(log: str) -> float:
    """The median in its ``log``, in microseconds.

    The log has it in microseconds, to two digits, if the average is below 1 ms, otherwise in milliseconds.

    Raises:
        FaultError: the log contains no median.
    """
    found = re.search(r"\] +Median: +([\d.]+) (us|ms)$", log, re.MULTILINE)
    if not found:
        raise FaultError("\n".join(["benchmark_app wrote no median:", *faults(log)]))
    return float(found[1]) * (1 if found[2] == "us" else 1000)


def faults(log: str) -> list[str]:
    """The last errors in its log, else its last lines."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.partition("] ")[2] for line in lines if line.startswith("[ ERROR ]")]
    return (errors or lines)[-LAST_LINES:]
