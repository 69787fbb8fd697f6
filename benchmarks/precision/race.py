"""Files of networks, timed interleaved in one process."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.runtimes import open_runner

PASSES, BURST_S, LEAST = 40, 0.01, 5
"""Passes of a race; in a pass, each file runs for at least this time and this number of times."""

Files = Mapping[str, tuple[str, Path]]
"""By name: the runtime and the file."""


def race(files: Files) -> dict[str, NDArray[np.float64]]:
    """Microseconds of each of ``files`` by pass, on one thread."""
    with ExitStack() as stack:
        runners = {name: stack.enter_context(open_runner(runtime, file, 1)) for name, (runtime, file) in files.items()}
        first = next(iter(runners.values()))
        images = np.random.default_rng(0).standard_normal((first.batch or 1, *first.image_shape)).astype(np.float32)
        found: dict[str, list[float]] = {name: [] for name in files}
        for _ in range(PASSES):
            for name, runner in runners.items():
                found[name].append(_burst(partial(runner.infer, images)))
    return {name: np.array(times) for name, times in found.items()}


def _burst(infer: Callable[[], Any]) -> float:
    """The lower decile of some inferences, after one that fills the caches, in microseconds."""
    infer()
    times: list[float] = []
    while sum(times) < BURST_S or len(times) < LEAST:
        began = time.perf_counter()
        infer()
        times.append(time.perf_counter() - began)
    return float(np.percentile(times, 10)) * 1e6


def ratio(slow: NDArray[np.float64], fast: NDArray[np.float64]) -> list[float]:
    """Speedup of ``fast`` over ``slow``: median over the passes, 10th and 90th percentile."""
    return [float(np.percentile(slow / fast, share)) for share in (50, 10, 90)]
