"""Interleaved latencies of two models, and how certain their ratio is.

Both run in one process in the order A B A B ..., a few inferences (a block) at a time, so that whatever slows down
the machine for a while affects both. The first inferences of a turn, when the other model is in the caches, may be
left out.
Percentiles are nearest-rank: each is a time that was measured.
"""

from __future__ import annotations

import gc
import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from catro_deploy.agent.clocks import clock_remarks
from catro_deploy.agent.results import Speedup, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from catro_deploy.agent.jobs import BenchProtocol
    from catro_deploy.agent.results import BenchFacts

__all__ = [
    "clocked",
    "load_remarks",
    "measure",
    "no_garbage_collection",
    "on_nvidia",
    "percentile",
    "ratio_interval",
    "remarks",
    "speedup",
    "timing",
]

# Limits above which a remark is added.
NOISY_CV = 0.15
# On a GPU, timed by its own clock: trtexec's limits for scatter and for the host's share of the time.
NOISY_GPU_CV, HOST_BOUND = 0.025, 0.8
DRIFT = 0.05
BUSY_SHARE = 0.25
# ONNX Runtime's name for the CPU, and OpenVINO's for it and for Intel's devices: no NVIDIA tool reports their clocks.
NOT_NVIDIA = ("CPUExecutionProvider", "CPU", "GPU", "NPU")


def measure(
    models: Mapping[str, Callable[[], float]], protocol: BenchProtocol, report: Callable[[float], None]
) -> dict[str, list[list[float]]]:
    """Latencies of each model in microseconds: blocks in chronological order, each with its single inferences.

    A model is a function that runs one inference and returns its time: see ``clocked``. The measurement ends when
    ``seconds`` have passed and each model has ``min_samples``, or after ``limit_s``. ``report`` is called after each
    turn with the seconds since the start, including warm-up.
    """
    blocks: dict[str, list[list[float]]] = {name: [] for name in models}
    with no_garbage_collection():
        begin = time.perf_counter()
        while time.perf_counter() - begin < protocol.warmup_s:
            for infer in models.values():
                _block(infer, protocol)
            report(time.perf_counter() - begin)
        start = time.perf_counter()
        samples, elapsed = 0, 0.0
        while elapsed < protocol.limit_s and (elapsed < protocol.seconds or samples < protocol.min_samples):
            for name, infer in models.items():
                blocks[name].append(_block(infer, protocol))
            samples += protocol.block
            elapsed = time.perf_counter() - start
            report(time.perf_counter() - begin)
    return blocks


def clocked(call: Callable[[], object]) -> Callable[[], float]:
    """``call`` timed by the clock of this computer: returns the microseconds it took, and drops its result."""
    clock = time.perf_counter_ns

    def once() -> float:
        start = clock()
        call()
        return (clock() - start) / 1000

    return once


def _block(infer: Callable[[], float], protocol: BenchProtocol) -> list[float]:
    for _ in range(protocol.settling):
        infer()
    return [infer() for _ in range(protocol.block)]


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection during a measurement."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: the smallest of ``ascending`` that ``percent`` of them do not exceed."""
    return float(ascending[max(math.ceil(percent / 100 * len(ascending)), 1) - 1])


def timing(blocks: Sequence[Sequence[float]]) -> Timing:
    """Percentiles, mean and all samples in chronological order, in microseconds; coefficient of variation."""
    samples = [sample for block in blocks for sample in block]
    ascending = sorted(samples)
    mean = float(np.mean(samples))
    return Timing(
        p50_us=percentile(ascending, 50),
        p90_us=percentile(ascending, 90),
        p99_us=percentile(ascending, 99),
        mean_us=mean,
        cv=float(np.std(samples)) / mean,
        n=len(samples),
        samples_us=tuple(samples),
    )


def speedup(original: Sequence[Sequence[float]], pruned: Sequence[Sequence[float]], protocol: BenchProtocol) -> Speedup:
    """The original's median over the pruned's, with the 95% confidence interval of ``ratio_interval``.

    If nearly all resampled ratios are on one side of the measured one, the interval ends at the measured one.
    """
    ratio = timing(original).p50_us / timing(pruned).p50_us
    low, high = ratio_interval(original, pruned, protocol.bootstrap_resamples, protocol.seed)
    return Speedup(ratio, (min(low, ratio), max(high, ratio)))


def ratio_interval(
    original: Sequence[Sequence[float]], pruned: Sequence[Sequence[float]], resamples: int, seed: int
) -> tuple[float, float]:
    """The 95% percentile-bootstrap interval of the ratio of medians, original over pruned.

    A turn is drawn as a whole: a block of the original with the following block of the pruned network. Successive turns
    also stay together, since a disturbance of the machine lasts longer than one turn: the bootstrap draws stretches of
    turns, each as long as the square root of the number of turns (the moving-block bootstrap of Kuensch, 1989, on a
    circle as in Politis and Romano, 1992).
    """
    turns = len(original)
    stretch = max(1, round(math.sqrt(turns)))
    generator = np.random.default_rng(seed)
    medians_original, medians_pruned = _WeightedMedian(original), _WeightedMedian(pruned)
    ratios = np.empty(resamples)
    for i in range(resamples):
        starts = generator.integers(turns, size=math.ceil(turns / stretch))
        drawn = (starts[:, None] + np.arange(stretch)).ravel()[:turns] % turns
        weights = np.bincount(drawn, minlength=turns)
        ratios[i] = medians_original(weights) / medians_pruned(weights)
    ratios.sort()
    return percentile(ratios.tolist(), 2.5), percentile(ratios.tolist(), 97.5)


class _WeightedMedian:
    """The nearest-rank median of blocks, each counted ``weights`` times; sorts only once for all resamples."""

    def __init__(self, blocks: Sequence[Sequence[float]]) -> None:
        values = np.concatenate([np.asarray(block) for block in blocks])
        owner = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._owner = owner[order]

    def __call__(self, weights: NDArray[np.int64]) -> float:
        cumulated = np.cumsum(weights[self._owner])
        return float(self._values[np.searchsorted(cumulated, cumulated[-1] / 2)])


def remarks(
    timings: Mapping[str, Timing], ratio: Speedup, protocol: BenchProtocol, facts: BenchFacts, *, graph: bool = False
) -> list[str]:
    """Caveats about the figures of ``original`` and ``pruned``, a sentence each.

    ``graph``: whether they were launched as CUDA graphs.
    """
    found = []
    for name, times in timings.items():
        if times.n < protocol.min_samples:
            found.append(
                f"The {name} model has {times.n} samples of the {protocol.min_samples} required: "
                f"no more fitted into {protocol.limit_s:g} s."
            )
        enqueue_us = times.enqueue_p50_us
        if times.cv > (NOISY_CV if enqueue_us is None else NOISY_GPU_CV):
            found.append(f"The {name} model's times scatter: their coefficient of variation is {times.cv:.0%}.")
        if enqueue_us is not None and enqueue_us > HOST_BOUND * times.p50_us:
            found.append(
                f"The {name} model waits for the host, which takes {enqueue_us:.0f} us to enqueue an "
                f"inference{'' if graph else ': as a CUDA graph it may be faster (--cuda-graph)'}."
            )
    low, high = ratio.ci95
    if low <= 1 <= high:
        found.append(f"The interval {low:.3f} to {high:.3f} contains 1: it shows no difference in speed.")
    found += _remarks_on_drift(*(_drift(timings[name].samples_us or ()) for name in ("original", "pruned")))
    return found + clock_remarks(facts, gpu=on_nvidia(facts.providers)) + _remarks_on_load(facts)


def on_nvidia(providers: Sequence[str]) -> bool:
    """Whether any of a runner's ``providers`` is an NVIDIA GPU; OpenVINO numbers its devices, as in ``GPU.0``."""
    return any(provider.partition(".")[0] not in NOT_NVIDIA for provider in providers)


def _remarks_on_drift(original: float, pruned: float) -> list[str]:
    """A remark on a drift of the medians: the turns alternate, so a change of the machine affects both equally."""
    if max(abs(original), abs(pruned)) <= DRIFT:
        return []
    if abs((1 + pruned) / (1 + original) - 1) <= DRIFT:
        became = "slowed" if original > 0 else "sped up"
        return [f"The machine {became} by {abs(original):.0%} while measuring; both networks were affected alike."]
    return [
        f"The medians moved by {original:+.0%} (original) and {pruned:+.0%} (pruned) from the first to the last third "
        "of the measurement: the speedup is less certain. Measure again: catro-deploy bench --force"
    ]


def _drift(samples_us: Sequence[float]) -> float:
    third = max(len(samples_us) // 3, 1)
    first, last = (percentile(sorted(part), 50) for part in (samples_us[:third], samples_us[-third:]))
    return last / first - 1


def _remarks_on_load(facts: BenchFacts) -> list[str]:
    found = []
    cores, load = facts.device.cores, facts.before.load_average
    if cores and load is not None and load > cores:
        found.append(f"The load average was {load:.1f} on {_counted(cores)} when the measurement began.")
    return found + load_remarks(cores, facts.other_load_cores)


def load_remarks(cores: int | None, others: float | None) -> list[str]:
    """A remark if other processes kept many of ``cores`` busy during a measurement: ``others``, None if not known."""
    if cores and others is not None and others > BUSY_SHARE * cores:
        return [f"Other processes kept {others:.1f} of {_counted(cores)} busy during the measurement."]
    return []


def _counted(cores: int) -> str:
    return f"{cores} core{'s' * (cores != 1)}"
