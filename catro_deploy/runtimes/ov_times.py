"""Times of single nodes from OpenVINO's counters, which report only averages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NodeCounters", "common_times_us"]

# An inference in which a node takes this many times as long as usual, beyond rounding errors, was disturbed.
DISTURBED = 1.5


class NodeCounters:
    """Readings of the counters after each inference, in one stretch for each time the network was loaded.

    A counter is the average, in whole microseconds, of all inferences since then. The time of the first inference,
    which prepares much, is therefore exact; all others share times derived from the rest.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._stretches: list[list[list[float]]] = []

    def restart(self) -> None:
        """Begin a new stretch: the network was loaded again."""
        self._stretches.append([])

    def read(self, request: Any) -> None:  # noqa: ANN401 - openvino.InferRequest
        """Read the counters of ``request`` after one more inference."""
        found = request.get_profiling_info()
        self._names = [node.node_name for node in found]
        if not self._stretches:
            self.restart()
        self._stretches[-1].append([node.real_time.total_seconds() * 1e6 for node in found])

    def node_times(self) -> tuple[list[str], NDArray[np.float64]]:
        """Names of the nodes that took time, and their microseconds (inferences, nodes).

        Other nodes were fused into these, or only represent tensors.
        """
        stretches = [np.array(readings) for readings in self._stretches if readings]
        if not stretches:
            return [], np.empty((0, 0))
        ran = np.any([readings.max(axis=0) > 0 for readings in stretches], axis=0)
        names = [name for name, one in zip(self._names, ran) if one]  # noqa: B905 - Python 3.8
        rows = [np.vstack([readings[:1], *[common_times_us(readings)] * (len(readings) - 1)]) for readings in stretches]
        return names, np.concatenate(rows)[:, ran]


def common_times_us(readings: NDArray[np.float64]) -> NDArray[np.float64]:
    """Microseconds of each node in all inferences but the first: (nodes,) from ``readings`` (inferences, nodes).

    The k-th reading times k is the sum of all times so far, too small by less than k. Differences of such sums are
    single times, which are less exact for larger k. Their mean is exact to a microsecond: rounding errors cancel out.
    Single times that are much longer than usual are left out: something else used the processor meanwhile.
    """
    if len(readings) < 2:
        return np.asarray(readings[0], dtype=np.float64)
    place = np.arange(1, len(readings) + 1)[:, None]
    sums = np.round(readings) * place + (place - 1) / 2
    single = np.diff(sums, axis=0)
    usual = np.median(single, axis=0)
    quiet = single <= np.maximum(usual, 0) * DISTURBED + 2 * place[1:]
    times: NDArray[np.float64] = np.where(quiet, single, 0).sum(axis=0) / quiet.sum(axis=0)
    return np.maximum(times, 0)
