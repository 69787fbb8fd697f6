"""Logits of networks on packed images, normalised as in training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from catro_deploy.agent.events import ImagesDone, LogitsPiece
from catro_deploy.agent.images import prepared
from catro_deploy.agent.models import open_model
from catro_deploy.agent.pieces import pieces
from catro_deploy.agent.probabilities import log_of
from catro_deploy.agent.results import VerifyResult
from catro_deploy.runtimes import Runner, check_metadata

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from catro_deploy.agent.events import Emit
    from catro_deploy.agent.jobs import VerifyJob, Workspace

__all__ = ["verify"]


def verify(job: VerifyJob, workspace: Workspace, emit: Emit) -> VerifyResult:
    """Run each model of ``job`` on all images; the logits are emitted as events: no more than a batch is in memory.

    For a model that ends in softmax they are the logarithms of its probabilities.

    Raises:
        ModelError: a model cannot be run, or is not the expected one.
        RuntimeMissingError: the runtime is not installed.
    """
    runtime = ""
    images = np.load(str(Path(workspace.folder, job.images)), mmap_mode="r")
    for name, model in job.models.items():
        with open_model(job, model.file, workspace, emit) as runner:
            check_metadata(runner, model.metadata)
            runtime = f"{runner.name} {runner.version}"
            for start in range(0, len(images), job.batch_size):
                some = prepared(images[start : start + job.batch_size], job.mean, job.std, runner)
                for piece in pieces(_infer(runner, some).astype("<f4").tobytes()):
                    emit(LogitsPiece(name, piece))
                emit(ImagesDone(len(some)))
    return VerifyResult(runtime)


def _infer(runner: Runner, images: NDArray[Any]) -> NDArray[np.float32]:
    if runner.batch is None:
        found = runner.infer(images)
    else:
        found = np.concatenate([runner.infer(images[i : i + 1]) for i in range(len(images))])
    return log_of(found) if runner.metadata.get("output") == "softmax" else found
