"""Model files of a job, opened by its runtime: as they are, or as the engine that this device runs in their place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from catro_deploy.runtimes import Runner, open_runner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["open_model"]

BUILT_FIRST = ("tensorrt",)


def open_model(
    job: Mapping[str, Any], file: str, emit: Callable[[dict[str, Any]], None], *, profiling: bool = False
) -> Runner:
    """A runner for the ONNX ``file`` in the folder of ``job``, to be used in a ``with``.

    A job holds ``runtime``, ``threads``, ``folder``, ``home`` (where the agent keeps what it makes), and for TensorRT
    how ``engine`` are built, see ``engines``.

    Raises:
        UsageError: there is no such runtime.
        ModelError, RuntimeMissingError, FaultError, StorageError: an engine could not be built.
    """
    model = Path(job["folder"], file)
    if job["runtime"] in BUILT_FIRST:
        from catro_deploy.agent.engines import engine_of

        model = engine_of(model, job["engine"], Path(job["home"]), emit)
    return open_runner(job["runtime"], model, job["threads"], profiling=profiling)
