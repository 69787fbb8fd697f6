"""The function that runs each job."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from catro_deploy.agent.results import FactsResult
from catro_deploy.errors import RuntimeMissingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from catro_deploy.agent.events import Emit
    from catro_deploy.agent.jobs import FactsJob, Job, R, Workspace

__all__ = ["facts", "run"]

# By job name; imported on use: most need numpy, and the doctor job reports if it is missing.
FUNCTIONS = {
    "bench": "catro_deploy.agent.bench:bench",
    "build": "catro_deploy.agent.build:build",
    "compare": "catro_deploy.agent.compare:compare",
    "doctor": "catro_deploy.agent.doctor:examine",
    "facts": "catro_deploy.agent.agent:facts",
    "profile": "catro_deploy.agent.profile:profile",
    "verify": "catro_deploy.agent.verify:verify",
}


def run(job: Job[R], workspace: Workspace, emit: Emit) -> R:
    """Run ``job`` in ``workspace``, report events to ``emit``, and return the result.

    Raises:
        RuntimeMissingError: numpy is not installed.
        CatroError: the job failed; see its function.
    """
    module, function = FUNCTIONS[job.NAME].split(":")
    try:
        do: Callable[..., R] = getattr(importlib.import_module(module), function)
        return do(job, workspace, emit)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise RuntimeMissingError(
            "The device's Python has no numpy.", "Install it there: python3 -m pip install numpy"
        ) from None


def facts(job: FactsJob, workspace: Workspace, emit: Emit) -> FactsResult:
    """The device's facts, the version of the runtime after a trial run, and whether the device reports its power.

    Raises:
        RuntimeMissingError: the runtime is not installed, finds no GPU, or may not use it.
        FaultError: the runtime does not work.
    """
    from catro_deploy.agent.energy import open_meter
    from catro_deploy.agent.facts import device_facts
    from catro_deploy.runtimes.trial import try_runtime

    version = try_runtime(job.runtime)
    with open_meter(gpu="cuda" in job.runtime or "tensorrt" in job.runtime) as meter:
        return FactsResult(device_facts(), f"{job.runtime} {version}", meter is not None)
