"""Jobs of the agent. A job and its answers are JSON, fit to cross a pipe to another machine.

A job names itself (``{"job": "bench", ...}``); what else it holds, and what its result is, is told where it is done.
The answers are events: ``progress`` and the like on the way, then ``result`` or ``error``.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catro_deploy.errors import RuntimeMissingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["facts", "run"]

# Imported when they are asked for: most need numpy, and the doctor says if that is missing.
JOBS = {
    "bench": "catro_deploy.agent.bench:bench",
    "build": "catro_deploy.agent.build:build",
    "doctor": "catro_deploy.agent.doctor:examine",
    "facts": "catro_deploy.agent.agent:facts",
    "profile": "catro_deploy.agent.profile:profile",
    "verify": "catro_deploy.agent.verify:verify",
}


def run(job: Mapping[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Do ``job``, tell ``emit`` how it goes, and return the result.

    Raises:
        UsageError: there is no such job.
        RuntimeMissingError: numpy is not installed.
        CatroError: as the job says.
    """
    if job["job"] not in JOBS:
        raise UsageError(f"The agent does not know the job {job['job']!r}.", f"It knows: {', '.join(JOBS)}.")
    module, function = JOBS[job["job"]].split(":")
    try:
        do: Callable[..., dict[str, Any]] = getattr(importlib.import_module(module), function)
        return do(job, emit)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise RuntimeMissingError(
            "The device's Python has no numpy.", "Install it there: python3 -m pip install numpy"
        ) from None


def facts(job: Mapping[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """What the device is, and the version of the ``runtime`` that ``job`` names.

    Raises:
        RuntimeMissingError: the runtime is not installed.
    """
    from catro_deploy.agent.facts import device_facts
    from catro_deploy.runtimes import open_runner

    version = open_runner(job["runtime"], Path(), 1).version
    return {**device_facts(), "runtime": f"{job['runtime']} {version}"}
