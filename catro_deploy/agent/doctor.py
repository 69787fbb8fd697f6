"""The job ``doctor``: what a device can do, and the commands for what is missing. It needs only Python."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from catro_deploy.agent.facts import device_facts
from catro_deploy.agent.results import DoctorResult, Finding
from catro_deploy.agent.store import Store
from catro_deploy.errors import CatroError
from catro_deploy.runtimes.cuda_files import gpu_build_hint
from catro_deploy.runtimes.ov_library import keep_silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from catro_deploy.agent.device import DeviceFacts, JetsonFacts
    from catro_deploy.agent.events import Emit
    from catro_deploy.agent.jobs import DoctorJob, Workspace

__all__ = ["examine", "telemetry"]

LEAST_FREE_GIB = 1.0
OTHER_FOLDER = "free some space, or name another folder: catro-deploy device add NAME --force --folder PATH"
# The module, its package on PyPI, and the package of Debian and JetPack, if there is one.
RUNTIMES = {
    "onnxruntime": ("onnxruntime", "onnxruntime", None),
    "openvino": ("openvino", "openvino", None),
    "tensorrt": ("tensorrt", "tensorrt", "python3-libnvinfer"),
}

# Polygraphy, which is sent with the agent, needs this version; OpenVINO has no wheels for older ones.
NEWER_PYTHON = {"tensorrt": (3, 10), "openvino": (3, 10), "openvino-gpu": (3, 10), "openvino-npu": (3, 10)}


def examine(job: DoctorJob, workspace: Workspace, emit: Emit) -> DoctorResult:
    """Check everything that the agent may need; ``needed`` marks what the job's runtime requires."""
    return DoctorResult(tuple(_findings(job.runtime)))


def _findings(runtime: str) -> Iterator[Finding]:
    facts = device_facts()
    jetson = facts.jetson is not None
    yield _python(runtime)
    yield Finding("processor", "works", _processor(facts), False)
    yield _package("numpy", "numpy", "python3-numpy", True, jetson)
    for name, (module, pip, apt) in RUNTIMES.items():
        needed = runtime.partition("-")[0] == name
        found = _package(module, pip, apt, needed, jetson)
        by_gpu = runtime.startswith("onnxruntime-") and needed and found.state != "works"
        yield replace(found, remedy=gpu_build_hint()) if by_gpu else found
    yield telemetry()
    if facts.jetson:
        yield from _jetson(facts.jetson)
    for gpu in facts.gpus or ():
        yield Finding("GPU", "works", gpu, False)
    if runtime == "tensorrt":
        yield _cuda()
    elif runtime != "onnxruntime":
        yield _tried(runtime)
    yield _disk()


def _python(runtime: str) -> Finding:
    least = NEWER_PYTHON.get(runtime, (3, 8))
    detail = f"{platform.python_version()} on {platform.platform()}"
    if sys.version_info >= least:
        return Finding("python", "works", detail, True)
    wanted = ".".join(map(str, least))
    remedy = f"choose Python {wanted} or later: catro-deploy device add NAME --force --python PATH"
    return Finding("python", "broken", f"{detail}; {runtime} needs {wanted} or later", True, remedy)


def _processor(facts: DeviceFacts) -> str:
    cores = f"{facts.cores} core{'s' * (facts.cores != 1)}" if facts.cores else ""
    names = (facts.device, facts.cpu_model, cores)
    return ", ".join(name for name in names if name)


def _package(module: str, pip: str, apt: str | None, needed: bool, jetson: bool) -> Finding:
    # On a Jetson the packages of JetPack match its libraries; those from PyPI may not.
    command = f"sudo apt-get install {apt}" if apt and jetson else f"python3 -m pip install {pip}"
    remedy = command if needed else f"optional: {command}"
    keep_silent()
    try:
        version = importlib.import_module(module).__version__
    except ModuleNotFoundError as error:
        if error.name == module:
            return Finding(module, "missing", "not installed", needed, remedy)
        return Finding(module, "broken", str(error), needed, remedy)
    except Exception as error:  # any error of a library that does not fit this machine
        return Finding(module, "broken", f"{type(error).__name__}: {error}", needed, remedy)
    return Finding(module, "works", str(version), needed)


def telemetry() -> Finding:
    """Whether ONNX Runtime's telemetry is off; this package disables it unless the user decided otherwise."""
    chosen = f"ORT_DISABLE_TELEMETRY={os.environ.get('ORT_DISABLE_TELEMETRY', '')}"
    if chosen.endswith("=1"):
        return Finding("no telemetry", "works", f"ONNX Runtime sends and stores nothing about its use: {chosen}", False)
    detail = f"from version 1.32 on, ONNX Runtime collects data about its use: {chosen}"
    return Finding("no telemetry", "missing", detail, False, "unset ORT_DISABLE_TELEMETRY")


def _jetson(facts: JetsonFacts) -> Iterator[Finding]:
    yield Finding("Jetson", "works", f"L4T {facts.l4t}, power mode {facts.power_mode or 'not known'}", False)
    clocks = facts.gpu_clock_range_mhz
    if clocks is None:
        detail = "the GPU's clock cannot be read (/sys/class/devfreq)"
        yield Finding("clocks", "missing", detail, False, "sudo jetson_clocks")
    elif clocks[0] < clocks[1]:
        detail = f"the GPU's clock moves between {clocks[0]:g} and {clocks[1]:g} MHz"
        yield Finding("clocks", "missing", detail, False, "fix it while you measure: sudo jetson_clocks")
    else:
        yield Finding("clocks", "works", f"the GPU's clock is fixed at {clocks[1]:g} MHz", False)


def _cuda() -> Finding:
    """CUDA's runtime library, as TensorRT's networks will use it, and the GPU that it finds."""
    try:
        from catro_deploy.runtimes.cuda import gpu_identity, try_gpu

        gpu = gpu_identity()
        try_gpu()
    except CatroError as error:
        return Finding("CUDA", "broken", error.problem, True, error.hint)
    except ImportError as error:  # numpy is missing, which has its own finding
        return Finding("CUDA", "missing", f"not tried: {error}", True)
    capability, sms = gpu["compute_capability"], gpu["sms"]
    return Finding("CUDA", "works", f"{gpu['gpu']}, compute capability {capability}, {sms} SMs", True)


def _tried(runtime: str) -> Finding:
    """Whether the runtime can run a tiny network on the device that it is for."""
    try:
        from catro_deploy.runtimes.trial import try_runtime

        return Finding(runtime, "works", f"{try_runtime(runtime)} runs a network", True)
    except CatroError as error:
        return Finding(runtime, "broken", error.problem, True, error.hint)
    except ImportError as error:  # as above
        return Finding(runtime, "missing", f"not tried: {error}", True)


def _disk() -> Finding:
    home = Store.here().home
    there = next(folder for folder in (home, *home.parents) if folder.is_dir())
    free = shutil.disk_usage(str(there)).free / 2**30
    detail = f"{free:.1f} GiB free in {there}"
    if free < LEAST_FREE_GIB:
        return Finding("disk", "broken", detail, False, OTHER_FOLDER)
    return Finding("disk", "works", detail, False)
