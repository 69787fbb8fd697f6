"""Model files of a job, opened with its runtime: directly, or as an engine of this device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from catro_deploy.agent.store import storage_errors
from catro_deploy.errors import MessageError
from catro_deploy.runtimes import Runner, open_runner

if TYPE_CHECKING:
    from catro_deploy.agent.events import Emit
    from catro_deploy.agent.jobs import ModelJob, Workspace
    from catro_deploy.agent.results import EngineSettings

__all__ = ["engine_settings", "open_model"]

BUILT_FIRST = ("tensorrt",)
SLOW_TO_COMPILE = ("openvino-gpu", "openvino-npu")
OPENVINO = "openvino"
"""The folder of networks that OpenVINO has compiled for GPUs and NPUs."""


def open_model(job: ModelJob[Any], file: str, workspace: Workspace, emit: Emit) -> Runner:
    """A runner for the ONNX ``file`` in the folder of ``workspace``, to be used in a ``with`` statement.

    Raises:
        UsageError: there is no such runtime.
        ModelError, RuntimeMissingError, FaultError, StorageError: an engine could not be built.
    """
    model = Path(workspace.folder, file)
    if job.runtime in BUILT_FIRST:
        from catro_deploy.agent.engines import engine_of

        model = engine_of(model, engine_settings(job), Path(workspace.home), emit)
    if job.runtime == "onnxruntime-tensorrt":
        return _by_provider(job, model, Path(workspace.home))
    if job.runtime in SLOW_TO_COMPILE:
        return _cached(job, model, Path(workspace.home))
    return open_runner(job.runtime, model, job.threads)


def _cached(job: ModelJob[Any], model: Path, home: Path) -> Runner:
    """A runner whose compiled network OpenVINO caches; for a CPU it compiles in a fraction of a second."""
    from catro_deploy.runtimes.ov import OvGpuRunner, OvNpuRunner

    cache = home / OPENVINO
    with storage_errors(home):
        cache.mkdir(parents=True, exist_ok=True)
    kind = OvGpuRunner if job.runtime == OvGpuRunner.name else OvNpuRunner
    return kind(model, job.threads, cache=cache)


def _by_provider(job: ModelJob[Any], model: Path, home: Path) -> Runner:
    """A runner whose engine ONNX Runtime builds, or loads from its cache."""
    from catro_deploy.agent.ort_engines import provider_options
    from catro_deploy.runtimes.ort_gpu import OrtTensorrtRunner

    settings = engine_settings(job)
    version = OrtTensorrtRunner(model, job.threads).version
    options = provider_options(model, settings, version, home) if model.is_file() else None
    return OrtTensorrtRunner(
        model, job.threads, options=options, batches=(1, settings.batches[0], max(settings.batches))
    )


def engine_settings(job: ModelJob[Any]) -> EngineSettings:
    """How engines of ``job`` are built.

    Raises:
        MessageError: the job does not specify it.
    """
    if job.engine is None:
        raise MessageError(f"The job {job.NAME} has engine = null. With {job.runtime} it must specify how to build.")
    return job.engine
