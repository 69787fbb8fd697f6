"""A trial of a runtime: whether it works on this machine, and not only whether it is installed."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

import numpy as np

from catro_deploy.errors import FaultError
from catro_deploy.runtimes import open_runner

__all__ = ["try_runtime"]

# An ONNX file, made by tests/runtimes/test_trial.py: logits (1, 4) = image (1, 4) + image.
MODEL = (
    "CAg6VwobCgVpbWFnZQoFaW1hZ2USBmxvZ2l0cyIDQWRkEgV0cmlhbFoXCgVpbWFnZRIOCgwIARIICgIIAQoCCARiGAoGbG9naXRz"
    "Eg4KDAgBEggKAggBCgIIBEIECgAQDQ=="
)
SHAPE = (1, 4)


def try_runtime(runtime: str) -> str:
    """Run a tiny network in ``runtime``, or use the GPU through CUDA if that needs engines; return its version.

    Raises:
        UsageError: there is no such runtime.
        RuntimeMissingError: it is not installed, finds no GPU, or this user may not use it.
        FaultError: it does not work.
    """
    version = open_runner(runtime, Path(), 1).version
    if runtime == "tensorrt":
        from catro_deploy.runtimes.cuda import try_gpu

        try_gpu()
        return version
    with tempfile.TemporaryDirectory(prefix="catro-deploy-trial-") as folder:
        model = Path(folder) / "model.onnx"
        model.write_bytes(base64.b64decode(MODEL))
        with open_runner(runtime, model, 1) as runner:
            answer = runner.infer(np.ones(SHAPE, np.float32))
    if not (answer == 2).all():
        raise FaultError(f"{runtime} {version} computes 1 + 1 = {answer.tolist()}.")
    return version
