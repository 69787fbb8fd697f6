"""Latencies of networks cut by other tools, shared by all importances that lead to the same widths."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from catro_deploy.budget import Budget
from catro_deploy.files import write_json
from catro_deploy.latency.candidate import CandidateLatency
from catro_deploy.records import GroupPlan

__all__ = ["TimedWidths", "meets"]

# By protocol, the latencies of a network and of the original in microseconds, of each measurement.
Times = Mapping[str, list[list[float]]]

# A network that is slower than this multiple of the budget when it is timed briefly is not timed at length.
QUICK_MARGIN = 1.1


@dataclass(frozen=True)
class TimedWidths:
    """Latencies of cut networks by their widths, stored in ``file``.

    A ratio gives the same widths whichever channels an importance prefers: measurements for one serve them all.
    """

    file: Path

    def latencies_us(
        self, groups: Sequence[GroupPlan], measure: Callable[[str], CandidateLatency], budget: Budget
    ) -> tuple[float, float]:
        """Latencies of a network that keeps ``groups`` and of the original, measured unless they are known.

        ``measure`` takes the name of a protocol. A network that meets ``budget`` is measured twice at length, and the
        slower result counts: many networks are tried, and noise makes some seem fast.
        """
        known = self._known
        times = known.setdefault(_key(groups), {"quick": [], "standard": []})
        while protocol := _next_protocol(times, budget):
            latency = measure(protocol)
            times[protocol].append([latency.candidate_us, latency.original_us])
            write_json(self.file, known)
        return _slower(times)

    def ratio(self, groups: Sequence[GroupPlan]) -> float:
        """The share of the original's latency that a measured network which keeps ``groups`` takes."""
        candidate_us, original_us = _slower(self._known[_key(groups)])
        return candidate_us / original_us

    def forget(self, groups: Sequence[GroupPlan]) -> None:
        """Measure a network that keeps ``groups`` again when it is needed."""
        write_json(self.file, {key: times for key, times in self._known.items() if key != _key(groups)})

    @property
    def _known(self) -> dict[str, dict[str, list[list[float]]]]:
        return json.loads(self.file.read_text(encoding="utf-8")) if self.file.is_file() else {}


def _key(groups: Sequence[GroupPlan]) -> str:
    return " ".join(str(len(group.kept)) for group in groups)


def _slower(times: Times) -> tuple[float, float]:
    candidate_us, original_us = max(times["standard"] or times["quick"], key=lambda pair: pair[0] / pair[1])
    return candidate_us, original_us


def _next_protocol(times: Times, budget: Budget) -> str | None:
    """The protocol by which to time a network next; None if it is known whether it meets ``budget``."""
    if times["standard"]:
        again = len(times["standard"]) == 1 and meets(budget, *times["standard"][0])
    elif times["quick"]:
        candidate_us, original_us = times["quick"][0]
        again = meets(budget, candidate_us / QUICK_MARGIN, original_us)
    else:
        return "quick"
    return "standard" if again else None


def meets(budget: Budget, candidate_us: float, original_us: float) -> bool:
    """Whether a network is as fast as ``budget`` requires."""
    return candidate_us <= budget.limit(original_us)
