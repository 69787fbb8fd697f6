"""Times of a network's nodes at many widths, as the runtime really runs them: fused, and among their neighbours.

Several networks are loaded at a time and visited in rounds of random order, with a reference network between any two: a
slowdown of the machine shows in the reference's times and is divided out.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from catro_deploy.agent.events import NodeTimes, Sample
from catro_deploy.agent.images import random_images
from catro_deploy.agent.measure import no_garbage_collection
from catro_deploy.agent.results import ProfileResult
from catro_deploy.runtimes import Runner, open_runner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from catro_deploy.agent.events import Emit
    from catro_deploy.agent.jobs import ProfileJob, Variant, VisitProtocol, Workspace

__all__ = ["low_mean", "profile"]

# The first inference after another network's finds cold caches.
WARMUP = 1
REFERENCE_RUNS = 3
# Turns before and after a visit whose reference times count for it.
NEAR = 3


def profile(job: ProfileJob, workspace: Workspace, emit: Emit) -> ProfileResult:
    """Time the nodes of each variant of ``job``; for those with ``whole``, also the network without profiling.

    Each variant becomes a ``Sample``.

    Raises:
        ModelError: a network cannot be run.
    """
    generator = np.random.default_rng(job.seed)
    variants, together = job.variants, job.protocol.together
    folder = Path(workspace.folder)
    with open_runner(job.runtime, folder / job.reference, job.threads) as reference, no_garbage_collection():
        images = random_images(reference, job.batch, generator)
        for start in range(0, len(variants), together):
            some = variants[start : start + together]
            for sample in _profile_some(some, folder, reference, images, job, generator):
                emit(sample)
        return ProfileResult(f"{reference.name} {reference.version}", tuple(reference.providers))


def low_mean(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the faster half of ``times`` (inferences, ...) without the fastest tenth.

    Disturbances only add time, so the slower half is dropped; and a mean, unlike a percentile, has a finer resolution
    than the clock, which counts whole microseconds.
    """
    ordered = np.sort(times, axis=0)
    count = len(ordered)
    lower: NDArray[np.float64] = ordered[count // 10 : max(count // 10 + 1, count // 2)].mean(axis=0)
    return lower


def _profile_some(
    variants: Sequence[Variant],
    folder: Path,
    reference: Runner,
    images: NDArray[Any],
    job: ProfileJob,
    generator: np.random.Generator,
) -> list[Sample]:
    began = time.perf_counter()
    with ExitStack() as stack:

        def load(variant: Variant, profiling: bool) -> Runner:
            runner = open_runner(job.runtime, folder / variant.file, job.threads, profiling=profiling)
            return stack.enter_context(runner)

        visitors = [
            _Visitor(load(variant, True), load(variant, False) if variant.whole else None) for variant in variants
        ]
        references: list[list[float]] = []
        turns: list[list[int]] = [[] for _ in variants]
        for _ in range(job.protocol.rounds):
            for place in generator.permutation(len(variants)):
                turns[place].append(len(references))
                references.append(_times_us(reference, images, REFERENCE_RUNS)[WARMUP:])
                visitors[place].visit(images, job.protocol)
        nodes = [visitor.nodes() for visitor in visitors]
        seconds = (time.perf_counter() - began) / len(variants)
        return [
            Sample(
                name=variant.name,
                seconds=seconds,
                nodes=nodes[place],
                whole_us=tuple(visitors[place].whole_us) or None,
                reference_us=tuple([_level_us(references, turn) for turn in turns[place]]),
            )
            for place, variant in enumerate(variants)
        ]


class _Visitor:
    """One network, loaded with profiling and, if it is to be timed as a whole, also without."""

    def __init__(self, profiled: Runner, plain: Runner | None) -> None:
        self._profiled, self._plain = profiled, plain
        self._visits: list[slice] = []
        self._done = 0
        self.whole_us: list[float] = []
        """The latency without profiling in each visit."""

    def visit(self, images: NDArray[Any], protocol: VisitProtocol) -> None:
        """Run the network repeatedly, as one visit."""
        with self._profiled.visit():
            first_ms = _times_us(self._profiled, images, 1 + WARMUP)[-1] / 1e3
            runs = int(np.clip(protocol.block_ms / first_ms, protocol.min_runs, protocol.max_runs))
            _times_us(self._profiled, images, runs)
        begin = self._done + 1 + WARMUP
        self._visits.append(slice(begin, begin + runs))
        self._done = begin + runs
        if self._plain is not None:
            times_us = _times_us(self._plain, images, WARMUP + runs)[WARMUP:]
            self.whole_us.append(float(low_mean(np.array(times_us))))

    def nodes(self) -> tuple[NodeTimes, ...]:
        """Each node's name and its time in each visit; called after the last visit."""
        names, times_us = self._profiled.node_times()
        rounds_us = np.round([low_mean(times_us[visit]) for visit in self._visits], 3)
        return tuple([NodeTimes(name, tuple(rounds_us[:, place].tolist())) for place, name in enumerate(names)])


def _level_us(references: Sequence[Sequence[float]], turn: int) -> float:
    """The reference network's time around ``turn``, over several neighbouring turns, since each has few inferences."""
    around = references[max(0, turn - NEAR + 1) : turn + NEAR + 1]
    return float(low_mean(np.concatenate(around)))


def _times_us(runner: Runner, images: NDArray[Any], count: int) -> list[float]:
    clock = time.perf_counter_ns
    times_us = []
    for _ in range(count):
        start = clock()
        runner.infer(images)
        times_us.append((clock() - start) / 1000)
    return times_us
