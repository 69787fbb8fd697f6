"""The job ``bench``: the latencies of two models that take turns."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from catro_deploy.device.facts import LoadMeter, device_facts, state
from catro_deploy.device.measure import measure, remarks, speedup, timing
from catro_deploy.errors import UsageError
from catro_deploy.runtimes import Runner, check_metadata, open_runner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["bench"]

PROGRESS_EVERY_S = 0.25


def bench(job: Mapping[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure the latency of ``original`` and ``pruned`` as ``protocol`` says.

    A job holds ``runtime``, ``threads``, ``batch``, ``protocol``, ``folder``, and ``models``, of each the ``file`` in
    that folder and the ``metadata`` that the file must say of itself. Events ``progress`` have the ``seconds`` since
    measuring began.

    Raises:
        ModelError: a model cannot be run, or is not the one that was meant.
        UsageError: a model does not take ``batch`` images at a time.
        RuntimeMissingError: the runtime is not installed.
    """
    protocol = job["protocol"]
    with ExitStack() as stack:
        runners = {
            name: stack.enter_context(open_runner(job["runtime"], Path(job["folder"], model["file"]), job["threads"]))
            for name, model in job["models"].items()
        }
        calls: dict[str, Callable[[], object]] = {}
        for name, runner in runners.items():
            check_metadata(runner, job["models"][name]["metadata"])
            calls[name] = partial(runner.infer, _input(runner, job["batch"], protocol["seed"]))
        original = runners["original"]
        facts = device_facts()
        facts.update(runtime=f"{original.name} {original.version}", providers=list(original.providers))
        facts.update({f"{key}_before": value for key, value in state().items()})
        meter = LoadMeter()
        blocks = measure(calls, protocol, _seldom(emit))
        facts["other_load_cores"] = meter.other_load_cores()
        facts.update({f"{key}_after": value for key, value in state().items()})
    timings = {name: timing(times) for name, times in blocks.items()}
    ratio = speedup(blocks["original"], blocks["pruned"], protocol)
    return {**timings, "speedup": ratio, "facts": facts, "warnings": remarks(timings, ratio, protocol, facts)}


def _input(runner: Runner, batch: int, seed: int) -> NDArray[np.float32]:
    if runner.batch not in (None, batch):
        raise UsageError(
            f"The ONNX files take {runner.batch} image(s) at a time, and {batch} are to be measured.",
            "Set export.dynamic_batch = true, run catro-deploy export again, then bench.",
        )
    # Normal numbers, like normalised images: zeros or denormals can run at another speed.
    return np.random.default_rng(seed).standard_normal((batch, *runner.image_shape)).astype(np.float32)


def _seldom(emit: Callable[[dict[str, Any]], None]) -> Callable[[float], None]:
    """Pass on one progress in a while, so that telling does not disturb what is measured."""
    last = [time.perf_counter()]

    def report(seconds: float) -> None:
        if time.perf_counter() - last[0] >= PROGRESS_EVERY_S:
            last[0] = time.perf_counter()
            emit({"event": "progress", "seconds": seconds})

    return report
