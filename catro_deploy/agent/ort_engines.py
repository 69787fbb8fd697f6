"""Options of ONNX Runtime's TensorRT provider: how it builds engines, and where it keeps them.

It names a cached engine after the network's structure: a network with other weights, such as the same one after
fine-tuning, would get the engine of the first (onnxruntime issues 6455 and 32254). So each ONNX file has its own
folder, for this ONNX Runtime on this device. TensorRT's timing cache is shared.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

from catro_deploy.agent.facts import device_facts
from catro_deploy.agent.store import storage_errors
from catro_deploy.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from catro_deploy.agent.results import EngineSettings

__all__ = ["FOLDER", "provider_options"]

FOLDER = "ort-engines"
MIB = 1 << 20


def provider_options(onnx: Path, settings: EngineSettings, version: str, home: Path) -> dict[str, str]:
    """Options for the engine of ``onnx`` with ONNX Runtime ``version``; its folder is created.

    Raises:
        UsageError: a DLA is requested, which the provider uses in weakly typed networks only.
        StorageError: the disk is full.
    """
    if settings.dla is not None:
        raise UsageError(
            f"DLA core {settings.dla} is requested; ONNX Runtime uses one only if TensorRT may choose the precision.",
            'Leave out [build] dla, or use a target with runtime = "tensorrt".',
        )
    options = {"trt_builder_optimization_level": str(settings.level)}
    if settings.workspace_mib is not None:
        options["trt_max_workspace_size"] = str(settings.workspace_mib * MIB)
    device = device_facts()
    place = [version, device.device, device.gpus, device.jetson and [device.jetson.l4t, device.jetson.power_mode]]
    engines = home / FOLDER / _digest(hashlib.sha256(onnx.read_bytes()).hexdigest(), options, settings.batches, place)
    timings = home / FOLDER / f"timings-{_digest(place)}"
    for folder in (engines, timings):
        with storage_errors(home):
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(str(folder))  # marks it as used, so that it is not deleted
    return {
        **options,
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(engines),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(timings),
    }


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
