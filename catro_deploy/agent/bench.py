"""The job ``bench``: interleaved latencies of two models."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from catro_deploy.agent import trtexec
from catro_deploy.agent.benchmark_app import app_median_us
from catro_deploy.agent.clocks import watched_clocks
from catro_deploy.agent.energy import energy, open_meter
from catro_deploy.agent.events import Progress
from catro_deploy.agent.facts import LoadMeter, device_facts, state
from catro_deploy.agent.images import random_images
from catro_deploy.agent.measure import clocked, measure, on_nvidia, percentile, remarks, speedup, timing
from catro_deploy.agent.models import open_model
from catro_deploy.agent.results import BenchFacts, BenchmarkAppTiming, BenchResult, Mode, ModeResult, TrtexecTiming
from catro_deploy.agent.soak import soaked
from catro_deploy.errors import FaultError, UsageError
from catro_deploy.runtimes import GpuRunner, Runner, check_metadata
from catro_deploy.runtimes.cuda import CaptureError
from catro_deploy.runtimes.ov import OvRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from catro_deploy.agent.device import DeviceFacts
    from catro_deploy.agent.events import Emit
    from catro_deploy.agent.jobs import BenchJob, BenchProtocol, Workspace

__all__ = ["bench"]

PROGRESS_EVERY_S = 0.25
# If the medians of two programs differ by more than this share, they contradict each other.
APART = 0.1


def bench(job: BenchJob, workspace: Workspace, emit: Emit) -> BenchResult:
    """Measure the latency of ``original`` and ``pruned`` in each mode of ``job``.

    Raises:
        ModelError: a model cannot be run, or is not the expected one.
        UsageError: a model does not accept this batch size.
        RuntimeMissingError: the runtime is not installed.
    """
    with ExitStack() as stack:
        runners = {}
        for name, model in job.models.items():
            runners[name] = stack.enter_context(open_model(job, model.file, workspace, emit))
            check_metadata(runners[name], model.metadata)
        modes, doubts = _capturable(runners, job)
        device, report = device_facts(), _seldom(emit)
        measured = [_measured(runners, mode, job.protocol, device, report) for mode in modes]
        first, facts = measured[0]
        result = BenchResult(
            original=first.original,
            pruned=first.pruned,
            speedup=first.speedup,
            mode=first.mode,
            warnings=(*doubts, *first.warnings),
            facts=facts,
            further=tuple([_brief(one) for one, _ in measured[1:]]),
        )
        if job.complete:
            result = _with_energy_and_others(result, runners, job)
        if job.soak_s:
            call = _call(runners["pruned"], result.mode, job.protocol.seed)
            result = replace(result, soak=soaked(call, job.soak_s, report))
        return result


def _capturable(runners: Mapping[str, Runner], job: BenchJob) -> tuple[tuple[Mode, ...], list[str]]:
    """The modes of ``job``, without CUDA graphs if one cannot be captured, and a remark on that."""
    try:
        for mode in job.modes:
            for runner in runners.values():
                if mode.cuda_graph:
                    _call(runner, mode, job.protocol.seed)
    except CaptureError as error:
        plain = (replace(mode, cuda_graph=False) for mode in job.modes)
        doubt = f"Measured without CUDA graphs, which cannot be captured for these networks: {error.problem}"
        return tuple(dict.fromkeys(plain)), [doubt]
    return job.modes, []


def _measured(
    runners: Mapping[str, Runner],
    mode: Mode,
    protocol: BenchProtocol,
    device: DeviceFacts,
    report: Callable[[float], None],
) -> tuple[ModeResult, BenchFacts]:
    enqueue_us: dict[str, list[float]] = {name: [] for name in runners}
    calls = {name: _call(runner, mode, protocol.seed, enqueue_us[name]) for name, runner in runners.items()}
    original = runners["original"]
    with watched_clocks(gpu=on_nvidia(original.providers)) as watch:

        def between_turns(seconds: float) -> None:
            watch.sample(counts=seconds >= protocol.warmup_s)
            report(seconds)

        before, meter = state(), LoadMeter()
        blocks = measure(calls, protocol, between_turns)
        during, other_load_cores = watch.found(), meter.other_load_cores()
    facts = BenchFacts(
        device=device,
        runtime=f"{original.name} {original.version}",
        providers=tuple(original.providers),
        properties=dict(original.properties) or None,
        before=before,
        after=state(),
        other_load_cores=other_load_cores,
        during=during,
    )
    timings = {name: replace(timing(times), enqueue_p50_us=_median(enqueue_us[name])) for name, times in blocks.items()}
    ratio = speedup(blocks["original"], blocks["pruned"], protocol)
    warnings = tuple(remarks(timings, ratio, protocol, facts, graph=bool(mode.cuda_graph)))
    return ModeResult(timings["original"], timings["pruned"], ratio, mode, warnings), facts


def _with_energy_and_others(result: BenchResult, runners: Mapping[str, Runner], job: BenchJob) -> BenchResult:
    """``result`` with energy and the times of the runtime's own benchmark tool, where the device has them."""
    calls = {name: _call(runner, result.mode, job.protocol.seed) for name, runner in runners.items()}
    with open_meter(gpu=on_nvidia(runners["original"].providers)) as meter:
        result = replace(result, energy=energy(calls, meter) if meter else None)
    binary = None if result.mode.cuda_graph is None else trtexec.find_trtexec()
    if binary:
        timed, doubts = _by_trtexec(binary, runners, result)
        result = replace(result, trtexec=timed, warnings=(*result.warnings, *doubts))
    if all(isinstance(runner, OvRunner) for runner in runners.values()):
        app, doubts = _by_benchmark_app(runners, result)
        result = replace(result, benchmark_app=app, warnings=(*result.warnings, *doubts))
    return result


def _by_benchmark_app(
    runners: Mapping[str, Runner], result: BenchResult
) -> tuple[BenchmarkAppTiming | None, list[str]]:
    """benchmark_app's medians of both networks, and remarks; if it fails, the measurements here remain valid."""
    here_us = {"original": result.original.p50_us, "pruned": result.pruned.p50_us}
    found, doubts = {}, []
    for name, runner in runners.items():
        assert isinstance(runner, OvRunner)
        try:
            found[name] = app_median_us(runner, result.mode.batch)
        except FaultError as error:
            return None, [f"benchmark_app did not time the {name} network: {error.problem}"]
        apart = found[name] / here_us[name] - 1
        if abs(apart) > APART:
            doubts.append(
                f"benchmark_app times the {name} network at {found[name]:.1f} us, {apart:+.0%} from what was measured "
                "here."
            )
    version = runners["original"].version
    return BenchmarkAppTiming(result.mode, version, found["original"], found["pruned"]), doubts


def _by_trtexec(
    binary: str, runners: Mapping[str, Runner], result: BenchResult
) -> tuple[TrtexecTiming | None, list[str]]:
    """trtexec's times of both engines, and remarks on them. If it fails, the measurements here remain valid."""
    modes: tuple[ModeResult, ...] = (result, *result.further)
    same = next((one for one in modes if one.mode == replace(one.mode, **trtexec.MODE)), None)
    if same is None:
        return None, []
    here_us = {"original": same.original.p50_us, "pruned": same.pruned.p50_us}
    timings, version, doubts = {}, "", []
    for name, runner in runners.items():
        assert isinstance(runner, GpuRunner)
        try:
            times_us, version = trtexec.trtexec_times_us(binary, runner.model, runner.shapes(same.mode.batch))
        except FaultError as error:
            return None, [f"trtexec is installed, but did not time the {name} engine: {error.problem}"]
        timings[name] = replace(timing([times_us]), samples_us=None)
        apart = timings[name].p50_us / here_us[name] - 1
        if abs(apart) > APART:
            doubts.append(
                f"trtexec times the {name} engine at {timings[name].p50_us:.1f} us as a CUDA graph without transfers, "
                f"{apart:+.0%} from what was measured here."
            )
    return TrtexecTiming(same.mode, version, timings["original"], timings["pruned"]), doubts


def _brief(result: ModeResult) -> ModeResult:
    """``result`` without the individual samples."""
    original, pruned = (replace(one, samples_us=None) for one in (result.original, result.pruned))
    return replace(result, original=original, pruned=pruned)


def _median(times_us: list[float]) -> float | None:
    return percentile(sorted(times_us), 50) if times_us else None


def _call(runner: Runner, mode: Mode, seed: int, enqueue_us: list[float] | None = None) -> Callable[[], float]:
    """A function that runs one inference and returns its time, measured by the GPU's clock in GPU modes."""
    images = _images(runner, mode.batch, seed)
    if mode.transfers is not None and mode.cuda_graph is not None:
        assert isinstance(runner, GpuRunner), "modes of a GPU need a runtime on a GPU"
        return runner.timer(images, transfers=mode.transfers, graph=mode.cuda_graph, enqueue_us=enqueue_us)
    return clocked(partial(runner.infer, images))


def _images(runner: Runner, batch: int, seed: int) -> NDArray[Any]:
    if runner.batch not in (None, batch):
        raise UsageError(
            f"The ONNX files take {runner.batch} at a time, and {batch} are to be measured.",
            "Set export.dynamic_batch = true, run catro-deploy export again, then bench.",
        )
    return random_images(runner, batch, np.random.default_rng(seed))


def _seldom(emit: Emit) -> Callable[[float], None]:
    """A function that emits the elapsed seconds over all modes, rarely enough not to disturb the measurement."""
    began = last = time.perf_counter()

    def report(_: float) -> None:
        nonlocal last
        if time.perf_counter() - last >= PROGRESS_EVERY_S:
            last = time.perf_counter()
            emit(Progress(last - began))

    return report
