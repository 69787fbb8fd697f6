"""The job ``build``: engines for this device, their layers, and how much the speed of builds varies."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from catro_deploy.agent.engines import built, effective, engine_of, layers_of
from catro_deploy.agent.events import EngineBuilding, EngineBuilt, FilePiece, Note
from catro_deploy.agent.images import random_images
from catro_deploy.agent.measure import percentile
from catro_deploy.agent.models import engine_settings
from catro_deploy.agent.results import BuildResult, BuiltEngine
from catro_deploy.agent.wire import read
from catro_deploy.errors import UsageError
from catro_deploy.runtimes import check_metadata
from catro_deploy.runtimes.trt import TrtRunner
from catro_deploy.runtimes.trt_engine import sidecar_of

if TYPE_CHECKING:
    from catro_deploy.agent.events import Emit
    from catro_deploy.agent.jobs import BuildJob, Workspace

__all__ = ["build"]

PIECE_BYTES = 1 << 20
# Inferences of one rebuilt engine: enough for a median, short compared with the build.
TIMED, WARMUP = 200, 20


def build(job: BuildJob, workspace: Workspace, emit: Emit) -> BuildResult:
    """Build the engine of each model, or find it, and send it in pieces. Rebuilds show the variation between builds.

    Raises:
        UsageError: the runtime has no engines.
        ModelError: TensorRT cannot run a network, or it is not the expected one.
        RuntimeMissingError: TensorRT or a GPU is missing.
        FaultError: an engine could not be built.
    """
    if job.runtime != "tensorrt":
        raise UsageError(f"{job.runtime} runs ONNX files as they are.", "There is nothing to build.")
    engines = {}
    for name, model in job.models.items():
        onnx = Path(workspace.folder, model.file)
        engine = engine_of(onnx, engine_settings(job), Path(workspace.home), emit)
        with TrtRunner(engine, 1) as runner:
            check_metadata(runner, model.metadata)
        rebuilds_us = []
        for turn in range(job.rebuilds):
            emit(Note(f"building {onnx.name} again, {turn + 1} of {job.rebuilds}"))
            emit(EngineBuilding())
            rebuilds_us.append(_rebuilt_us(onnx, engine, job))
            emit(EngineBuilt())
        sidecar = json.loads(sidecar_of(engine).read_text(encoding="utf-8"))
        found = {**sidecar, "layers": layers_of(engine), "rebuilds_us": rebuilds_us}
        engines[name] = read(BuiltEngine, found, f"sidecar of {engine.name}")
        content = engine.read_bytes()
        for start in range(0, len(content), PIECE_BYTES):
            emit(FilePiece(name, base64.b64encode(content[start : start + PIECE_BYTES]).decode()))
    return BuildResult(engines)


def _rebuilt_us(onnx: Path, engine: Path, job: BuildJob) -> float:
    """The median time of an engine that is built without the timing cache of earlier builds."""
    with tempfile.TemporaryDirectory(prefix="catro-deploy-build-") as folder:
        again = Path(folder) / engine.name
        again.write_bytes(built(onnx, effective(engine_settings(job)), None))
        sidecar_of(again).write_bytes(sidecar_of(engine).read_bytes())
        with TrtRunner(again, 1) as runner:
            images = random_images(runner, job.batch, np.random.default_rng(0))
            once = runner.timer(images, transfers=False, graph=False)
            return percentile(sorted([once() for _ in range(WARMUP + TIMED)][WARMUP:]), 50)
