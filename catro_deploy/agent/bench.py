"""The job ``bench``: the latencies of two models that take turns."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from catro_deploy.agent import trtexec
from catro_deploy.agent.energy import energy, open_meter
from catro_deploy.agent.facts import LoadMeter, device_facts, state
from catro_deploy.agent.measure import CPU_PROVIDER, clocked, measure, percentile, remarks, speedup, timing
from catro_deploy.agent.models import open_model
from catro_deploy.errors import FaultError, UsageError
from catro_deploy.runtimes import GpuRunner, Runner, check_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["bench"]

PROGRESS_EVERY_S = 0.25
# Medians by two programs that differ more than this do not mean the same.
APART = 0.1


def bench(job: Mapping[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure the latency of ``original`` and ``pruned`` in each of the ``modes``, as ``protocol`` says.

    A job holds what opens models (see ``open_model``), ``protocol``, ``models``, of each the ``file`` and the
    ``metadata`` that the file must say of itself, and ``modes``: ``batch`` and, on a GPU, whether ``transfers`` between
    it and the host count and whether the work is put there as one ``cuda_graph``. The result is that of the first mode;
    those of the others, without single samples, are its ``further``. With ``beside`` it also has the ``energy`` where
    the device tells its power, and what ``trtexec`` says where that is installed. Events ``progress`` have the
    ``seconds`` since measuring began.

    Raises:
        ModelError: a model cannot be run, or is not the one that was meant.
        UsageError: a model does not take so many images at a time.
        RuntimeMissingError: the runtime is not installed.
    """
    with ExitStack() as stack:
        runners = {}
        for name, model in job["models"].items():
            runners[name] = stack.enter_context(open_model(job, model["file"], emit))
            check_metadata(runners[name], model["metadata"])
        original = runners["original"]
        facts = device_facts()
        facts.update(runtime=f"{original.name} {original.version}", providers=list(original.providers))
        report, first = _seldom(emit), job["modes"][0]
        result = _measured(runners, first, job["protocol"], facts, report)
        further = [_measured(runners, mode, job["protocol"], dict(facts), report) for mode in job["modes"][1:]]
        if job.get("beside"):
            result = _with_what_else_is_known(result, further, runners, job)
    return {**result, "further": [_brief(one) for one in further]}


def _measured(
    runners: Mapping[str, Runner],
    mode: Mapping[str, Any],
    protocol: Mapping[str, Any],
    facts: dict[str, Any],
    report: Callable[[float], None],
) -> dict[str, Any]:
    enqueue_us: dict[str, list[float]] = {name: [] for name in runners}
    calls = {name: _call(runner, mode, protocol["seed"], enqueue_us[name]) for name, runner in runners.items()}
    facts.update({f"{key}_before": value for key, value in state().items()})
    meter = LoadMeter()
    blocks = measure(calls, protocol, report)
    facts["other_load_cores"] = meter.other_load_cores()
    facts.update({f"{key}_after": value for key, value in state().items()})
    timings = {name: {**timing(times), **_enqueue(enqueue_us[name])} for name, times in blocks.items()}
    ratio = speedup(blocks["original"], blocks["pruned"], protocol)
    warnings = remarks(timings, ratio, protocol, facts)
    return {**timings, "speedup": ratio, "mode": dict(mode), "facts": facts, "warnings": warnings}


def _with_what_else_is_known(
    result: dict[str, Any], further: Sequence[Mapping[str, Any]], runners: Mapping[str, Runner], job: Mapping[str, Any]
) -> dict[str, Any]:
    """``result`` with energy and a second opinion, where there are such."""
    first = job["modes"][0]
    on_gpu = runners["original"].providers[0] != CPU_PROVIDER
    calls = {name: _call(runner, first, job["protocol"]["seed"]) for name, runner in runners.items()}
    with open_meter(gpu=on_gpu) as meter:
        used = energy(calls, meter) if meter else None
    if used:
        result = {**result, "energy": used}
    binary = trtexec.find_trtexec() if "cuda_graph" in first else None
    if binary:
        other, doubts = _second_opinion(binary, runners, [result, *further])
        result = {**result, "trtexec": other, "warnings": [*result["warnings"], *doubts]}
    return result


def _second_opinion(
    binary: str, runners: Mapping[str, Runner], results: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """What trtexec says of both engines, and what is doubtful about that; it does not spoil what was measured here."""
    same = next(one for one in results if {**one["mode"], **trtexec.MODE} == one["mode"])
    found: dict[str, Any] = {"mode": same["mode"]}
    doubts = []
    for name, runner in runners.items():
        assert isinstance(runner, GpuRunner)
        try:
            times_us, version = trtexec.trtexec_times_us(binary, runner.model, runner.shapes(same["mode"]["batch"]))
        except FaultError as error:
            return {}, [f"trtexec is here, and did not time the {name} engine: {error.problem}"]
        ours_us = same[name]["p50_us"]
        found["version"] = version
        found[name] = {key: value for key, value in timing([times_us]).items() if key != "samples_us"}
        apart = found[name]["p50_us"] / ours_us - 1
        if abs(apart) > APART:
            doubts.append(
                f"trtexec times the {name} engine at {found[name]['p50_us']:.1f} us as a CUDA graph without transfers, "
                f"{apart:+.0%} from what was measured here."
            )
    return found, doubts


def _brief(result: Mapping[str, Any]) -> dict[str, Any]:
    """``result`` without single samples and the facts of the device."""
    timings = {
        name: {key: value for key, value in result[name].items() if key != "samples_us"}
        for name in ("original", "pruned")
    }
    return {**timings, **{key: result[key] for key in ("speedup", "mode", "warnings")}}


def _enqueue(times_us: list[float]) -> dict[str, float]:
    return {"enqueue_p50_us": percentile(sorted(times_us), 50)} if times_us else {}


def _call(
    runner: Runner, mode: Mapping[str, Any], seed: int, enqueue_us: list[float] | None = None
) -> Callable[[], float]:
    """What infers once and says how long it took: by the GPU's clock where a mode speaks of one."""
    images = _images(runner, mode["batch"], seed)
    if "cuda_graph" in mode:
        assert isinstance(runner, GpuRunner), "modes of a GPU are asked of runtimes on GPUs only"
        return runner.timer(images, transfers=mode["transfers"], graph=mode["cuda_graph"], enqueue_us=enqueue_us)
    return clocked(partial(runner.infer, images))


def _images(runner: Runner, batch: int, seed: int) -> NDArray[np.float32]:
    if runner.batch not in (None, batch):
        raise UsageError(
            f"The ONNX files take {runner.batch} image(s) at a time, and {batch} are to be measured.",
            "Set export.dynamic_batch = true, run catro-deploy export again, then bench.",
        )
    # Normal numbers, like normalised images: zeros or denormals can run at another speed.
    return np.random.default_rng(seed).standard_normal((batch, *runner.image_shape)).astype(np.float32)


def _seldom(emit: Callable[[dict[str, Any]], None]) -> Callable[[float], None]:
    """Tell in a while, so that telling does not disturb what is measured, how many seconds have passed in all modes."""
    began = last = time.perf_counter()

    def report(_: float) -> None:
        nonlocal last
        if time.perf_counter() - last >= PROGRESS_EVERY_S:
            last = time.perf_counter()
            emit({"event": "progress", "seconds": last - began})

    return report
