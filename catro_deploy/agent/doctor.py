"""The job ``doctor``: what a device can do, and the commands for what is missing. Needs nothing but Python."""

from __future__ import annotations

import importlib
import platform
import shutil
import sys
from typing import TYPE_CHECKING, Any

from catro_deploy.agent.facts import device_facts
from catro_deploy.agent.store import Store
from catro_deploy.errors import CatroError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["examine"]

LEAST_FREE_GIB = 1.0
# What is imported, what pip calls it, and what Debian and JetPack call it, if they have it.
RUNTIMES = {
    "onnxruntime": ("onnxruntime", "onnxruntime", None),
    "tensorrt": ("tensorrt", "tensorrt", "python3-libnvinfer"),
}

# Polygraphy, which is sent along, needs it.
NEWER_PYTHON = {"tensorrt": (3, 10)}


def examine(job: Mapping[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Look at all that the agent may need; ``needed`` is what the ``runtime`` that ``job`` names cannot do without.

    The result has ``findings``: ``name``, ``state`` (works, missing or broken), ``detail``, ``needed``, ``remedy``.
    """
    return {"findings": list(_findings(job["runtime"]))}


def _findings(runtime: str) -> Iterator[dict[str, Any]]:
    facts = device_facts()
    jetson = "l4t" in facts
    yield _python(runtime)
    yield _finding("processor", "works", _processor(facts), False)
    yield _package("numpy", "numpy", "python3-numpy", True, jetson)
    for name, (module, pip, apt) in RUNTIMES.items():
        yield _package(module, pip, apt, runtime in (name, f"{name}-cuda", f"{name}-tensorrt"), jetson)
    if jetson:
        yield from _jetson(facts)
    for gpu in facts.get("gpus", []):
        yield _finding("GPU", "works", gpu, False)
    if runtime == "tensorrt":
        yield _cuda(jetson)
    yield _disk()


def _python(runtime: str) -> dict[str, Any]:
    least = NEWER_PYTHON.get(runtime, (3, 8))
    detail = f"{platform.python_version()} on {platform.platform()}"
    if sys.version_info >= least:
        return _finding("python", "works", detail, True)
    wanted = ".".join(map(str, least))
    remedy = f"name one of {wanted} or later: catro-deploy device add --force --python PATH"
    return _finding("python", "broken", f"{detail}; {runtime} needs {wanted} or later", True, remedy)


def _processor(facts: Mapping[str, Any]) -> str:
    names = (facts["device"], facts["cpu_model"], f"{facts['cores']} cores")
    return ", ".join(name for name in names if name)


def _package(module: str, pip: str, apt: str | None, needed: bool, jetson: bool) -> dict[str, Any]:
    # On a Jetson the packages of JetPack fit its libraries; others from PyPI may not.
    remedy = f"sudo apt-get install {apt}" if apt and jetson else f"python3 -m pip install {pip}"
    try:
        version = importlib.import_module(module).__version__
    except ModuleNotFoundError as error:
        if error.name == module:
            return _finding(module, "missing", "not installed", needed, remedy)
        return _finding(module, "broken", str(error), needed, remedy)
    except Exception as error:  # whatever a library raises that does not fit this machine
        return _finding(module, "broken", f"{type(error).__name__}: {error}", needed, remedy)
    return _finding(module, "works", str(version), needed)


def _jetson(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield _finding("Jetson", "works", f"L4T {facts['l4t']}, power mode {facts['power_mode'] or 'not known'}", False)
    clocks = facts["gpu_clock_range_mhz"]
    if clocks is None:
        detail = "jetson_clocks tells root only what the clocks are; they are noted while it measures"
        yield _finding("clocks", "missing", detail, False, "sudo jetson_clocks")
    elif clocks[0] < clocks[1]:
        detail = f"the GPU's clock moves between {clocks[0]:g} and {clocks[1]:g} MHz"
        yield _finding("clocks", "missing", detail, False, "fix it while you measure: sudo jetson_clocks")
    else:
        yield _finding("clocks", "works", f"the GPU's clock is fixed at {clocks[1]:g} MHz", False)


def _cuda(jetson: bool) -> dict[str, Any]:
    """CUDA's runtime library, as TensorRT's networks will use it, and the GPU that it finds."""
    try:
        from catro_deploy.runtimes.cuda import gpu_identity

        gpu = gpu_identity()
    except CatroError as error:
        remedy = "sudo apt-get install nvidia-jetpack" if jetson else error.hint
        return _finding("CUDA", "broken", error.problem, True, remedy)
    except ImportError as error:  # numpy, which stands in a line of its own
        return _finding("CUDA", "missing", f"not tried: {error}", True)
    capability, sms = gpu["compute_capability"], gpu["sms"]
    return _finding("CUDA", "works", f"{gpu['gpu']}, compute capability {capability}, {sms} SMs", True)


def _disk() -> dict[str, Any]:
    home = Store.here().home
    there = next(folder for folder in (home, *home.parents) if folder.is_dir())
    free = shutil.disk_usage(str(there)).free / 2**30
    detail = f"{free:.1f} GiB free in {there}"
    if free < LEAST_FREE_GIB:
        return _finding("disk", "broken", detail, False, "free some, or: catro-deploy device add --force --folder")
    return _finding("disk", "works", detail, False)


def _finding(name: str, state: str, detail: str, needed: bool, remedy: str = "") -> dict[str, Any]:
    return {"name": name, "state": state, "detail": detail, "needed": needed, "remedy": remedy}
