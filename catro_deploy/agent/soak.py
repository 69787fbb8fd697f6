"""A soak: one model runs back to back for minutes, to see whether its latency holds once the device is warm."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from catro_deploy.agent.measure import no_garbage_collection, percentile
from catro_deploy.agent.results import Soak, SoakWindow

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["soaked"]

# Windows of a soak that are reported, and how many of the last ones give the sustained latency.
WINDOWS, SUSTAINED = 20, 5
# At most this many latencies of a window are kept, evenly spaced: enough for a 99th percentile.
MOST_SAMPLES = 20000


def soaked(infer: Callable[[], float], seconds: float, report: Callable[[float], None]) -> Soak:
    """Infer back to back for ``seconds``; ``infer`` returns the microseconds that it took.

    ``report`` is called after each window with the seconds that have passed.
    """
    windows, kept = [], []
    with no_garbage_collection():
        began = time.perf_counter()
        for place in range(WINDOWS):
            starts_s = time.perf_counter() - began
            times_us = _window(infer, began + seconds * (place + 1) / WINDOWS)
            ascending = sorted(times_us[:: -(-len(times_us) // MOST_SAMPLES)])
            windows.append(SoakWindow(starts_s, len(times_us), percentile(ascending, 50), percentile(ascending, 99)))
            kept.append(ascending)
            report(time.perf_counter() - began)
    last = sorted([one for ascending in kept[-SUSTAINED:] for one in ascending])
    return Soak(
        seconds=time.perf_counter() - began,
        sustained_us=percentile(last, 50),
        sustained_p99_us=percentile(last, 99),
        windows=tuple(windows),
    )


def _window(infer: Callable[[], float], until: float) -> list[float]:
    """Microseconds of each inference until the clock reaches ``until``, at least one."""
    times_us = [infer()]
    while time.perf_counter() < until:
        times_us.append(infer())
    return times_us
