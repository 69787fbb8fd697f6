"""Inference runtimes by name; each is imported on use, so the others need not be installed.

Runs on devices too: Python 3.8 and numpy suffice.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from catro_deploy.errors import UsageError
from catro_deploy.runtimes.base import GpuRunner, Runner, check_metadata

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RUNTIMES", "GpuRunner", "Runner", "check_metadata", "open_runner"]

# Name -> the module and class that implement Runner.
RUNTIMES = {
    "onnxruntime": ("catro_deploy.runtimes.ort", "OrtRunner"),
    "onnxruntime-cuda": ("catro_deploy.runtimes.ort_gpu", "OrtCudaRunner"),
    "onnxruntime-tensorrt": ("catro_deploy.runtimes.ort_gpu", "OrtTensorrtRunner"),
    "openvino": ("catro_deploy.runtimes.ov", "OvRunner"),
    "openvino-gpu": ("catro_deploy.runtimes.ov", "OvGpuRunner"),
    "openvino-npu": ("catro_deploy.runtimes.ov", "OvNpuRunner"),
    "tensorrt": ("catro_deploy.runtimes.trt", "TrtRunner"),
}


def open_runner(runtime: str, model: Path, threads: int, *, profiling: bool = False) -> Runner:
    """A runner for the ``model`` file: ``with open_runner(...) as runner: runner.infer(images)``.

    With ``profiling`` it records the time of every node, which makes it slower.

    Raises:
        UsageError: there is no such runtime.
    """
    if runtime not in RUNTIMES:
        raise UsageError(f"There is no runtime {runtime!r}.", f"Known runtimes: {', '.join(RUNTIMES)}.")
    module, name = RUNTIMES[runtime]
    runner: Runner = getattr(importlib.import_module(module), name)(model, threads, profiling=profiling)
    return runner
