"""The job ``compare``: interleaved latencies of the same networks with several runtimes, in one process."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from catro_deploy.agent.events import Progress
from catro_deploy.agent.facts import LoadMeter, device_facts
from catro_deploy.agent.images import random_images
from catro_deploy.agent.measure import clocked, load_remarks, measure, speedup, timing
from catro_deploy.agent.results import ComparedTiming, CompareResult
from catro_deploy.errors import RuntimeMissingError
from catro_deploy.runtimes import Runner, check_metadata, open_runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from catro_deploy.agent.events import Emit
    from catro_deploy.agent.jobs import CompareJob, Workspace

__all__ = ["compare"]


def compare(job: CompareJob, workspace: Workspace, emit: Emit) -> CompareResult:
    """Measure every network of ``job`` with each of its runtimes that is installed; the first is the reference.

    Raises:
        ModelError: a network cannot be run, or is not the expected one.
        RuntimeMissingError: none of the runtimes is installed.
    """
    missing: dict[str, str] = {}
    calls: dict[str, Callable[[], float]] = {}
    runners: dict[str, Runner] = {}
    with ExitStack() as stack:
        for runtime in job.runtimes:
            try:
                for name, runner in _opened(job, runtime, Path(workspace.folder), stack).items():
                    runners[f"{runtime} {name}"] = runner
            except RuntimeMissingError as error:
                missing[runtime] = error.problem
        if not runners:
            raise RuntimeMissingError(
                "\n".join(["None of the runtimes can be used.", *missing.values()]), "Install one on the device."
            )
        for key, runner in runners.items():
            images = random_images(runner, job.batch, np.random.default_rng(job.protocol.seed))
            calls[key] = clocked(partial(runner.infer, images))
        meter = LoadMeter()
        blocks = measure(calls, job.protocol, lambda seconds: emit(Progress(seconds)))
        reference = blocks[next(iter(blocks))]
        timings = [
            ComparedTiming(
                runtime=runner.name,
                network=key.partition(" ")[2],
                timing=replace(timing(blocks[key]), samples_us=None),
                speedup=speedup(reference, blocks[key], job.protocol),
            )
            for key, runner in runners.items()
        ]
        versions = {runner.name: runner.version for runner in runners.values()}
    facts = device_facts()
    warnings = load_remarks(facts.cores, meter.other_load_cores())
    return CompareResult(facts, versions, missing, tuple(timings), tuple(warnings))


def _opened(job: CompareJob, runtime: str, folder: Path, stack: ExitStack) -> dict[str, Runner]:
    found = {}
    for name, model in job.models.items():
        found[name] = stack.enter_context(open_runner(runtime, folder / model.file, job.threads))
        check_metadata(found[name], model.metadata)
    return found
