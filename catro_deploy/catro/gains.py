"""Candidate widths with their worth and cost, from which allocations choose; and the uniform allocation.

The other allocations are in greedy.py (the paper's Algorithm 2) and exact.py (a proven optimum).
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from catro_deploy.catro.scatter import Scatter
from catro_deploy.catro.trace_ratio import ratio_curve, scores
from catro_deploy.errors import BudgetError
from catro_deploy.records import Branch

__all__ = [
    "Allocation",
    "Bounded",
    "CostModel",
    "CostTables",
    "GroupChoice",
    "GroupValue",
    "Limit",
    "beyond",
    "check_branches",
    "group_value",
    "log",
    "uniform",
    "weigh",
]


@dataclass(frozen=True)
class CostTables:
    """A cost as a sum over groups and over pairs of groups: ``constant`` + the entries of the chosen widths.

    ``single[group]`` has shape (candidates,), ``pair[a, b]`` with a != b (candidates of a, candidates of b).
    """

    constant: float
    single: Mapping[str, NDArray[np.float64]]
    pair: Mapping[tuple[str, str], NDArray[np.float64]]


class CostModel(Protocol):
    """The cost of a network by the widths of its groups.

    The unit is the budget's. At width 0 the layers that produce or read the group are removed and cost nothing.
    """

    def predict(self, widths: Mapping[str, int]) -> float:
        """Cost of the whole network."""

    def change(self, widths: Mapping[str, int], group: str, width: int) -> float:
        """Cost added by setting ``group`` to ``width``, over all layers that the group touches."""

    def neighbours(self, group: str) -> Sequence[str]:
        """The groups whose cost changes when ``group`` changes, itself among them."""

    def tables(self, candidates: Mapping[str, Sequence[int]]) -> CostTables:
        """Tables of the cost over the ``candidates`` of every group.

        Raises:
            BudgetError: a layer depends on more than two groups.
        """


class Bounded(Protocol):
    """A resource with its own limit, in addition to the cost that gains are weighed against."""

    def predict(self, widths: Mapping[str, int]) -> float:
        """What the whole network uses; never less than any of ``rows``."""

    def rows(self, candidates: Mapping[str, Sequence[int]]) -> Sequence[CostTables]:
        """Sums over the ``candidates`` of every group; the largest is what the network uses.

        Raises:
            BudgetError: a layer depends on more than two groups.
        """


@dataclass(frozen=True)
class Limit:
    """No network may use more than ``most`` of ``use``; ``name`` is for error messages."""

    name: str
    use: Bounded
    most: float

    def holds(self, widths: Mapping[str, int]) -> bool:
        """Whether a network of these widths is within the limit."""
        return self.use.predict(widths) <= self.most


@dataclass(frozen=True)
class GroupChoice:
    """The widths that a group may take, ascending, and how many layers produce its channels.

    The first width is 0 if the group is in a branch that may be removed.
    """

    name: str
    widths: tuple[int, ...]
    members: int = 1

    def __post_init__(self) -> None:
        """Check the widths.

        Raises:
            ValueError: they are negative or not ascending, or none is above 0.
        """
        rising = all(narrow < wide for narrow, wide in pairwise(self.widths))
        if not self.widths or self.widths[0] < 0 or self.widths[-1] < 1 or not rising:
            raise ValueError(f"candidate widths of {self.name} must be ascending and end above 0, not {self.widths}")

    @property
    def smallest(self) -> int:
        """The first width above 0."""
        return self.widths[0] or self.widths[1]


@dataclass(frozen=True)
class GroupValue:
    """``value[i]`` is the worth of ``widths[i]`` channels, finite and never less than that of fewer channels.

    ``log_gain[i]`` is the logarithm of ``value[i + 1] - value[i]``: it distinguishes gains that are too small to show
    in the sums. Without it, and from width 0, the differences are used.
    """

    choice: GroupChoice
    value: NDArray[np.float64]
    log_gain: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Check that the arrays are consistent.

        Raises:
            ValueError: they differ in length, the values decrease or are not finite, or the gains do not match them.
        """
        gains = np.diff(self.value)
        if len(self.value) != len(self.choice.widths) or not np.isfinite(self.value).all() or (gains < 0).any():
            raise ValueError(f"values of {self.choice.name} must be finite and not decrease, one for each width")
        if self.log_gain is not None:
            above = 0 if self.choice.widths[0] else 1
            if len(self.log_gain) != len(gains) or not np.allclose(np.exp(self.log_gain)[above:], gains[above:]):
                raise ValueError(f"log_gain of {self.choice.name} does not match its values")

    def at(self, width: int) -> float:
        """Value of a candidate width."""
        return float(self.value[self.choice.widths.index(width)])

    def log_gains(self, place: int, last: int) -> NDArray[np.float64]:
        """Logarithms of the gains of the widths at ``place + 1`` to ``last`` over the one at ``place``."""
        if self.log_gain is not None and self.choice.widths[place]:
            gains: NDArray[np.float64] = np.logaddexp.accumulate(self.log_gain[place:last])
            return gains
        return np.array([log(gain) for gain in self.value[place + 1 : last + 1] - self.value[place]])


@dataclass(frozen=True)
class Allocation:
    """The width of every group, the sum of their values, the predicted cost, and the optimality gap.

    ``gap`` is the largest missing share of the best possible gain over the smallest network; None if it was not proven.
    """

    widths: dict[str, int]
    value: float
    cost: float
    gap: float | None = None


def group_value(
    choice: GroupChoice, scatter: Scatter, *, temperature: float, epsilon: float, step: int = 1
) -> GroupValue:
    """The worth of each candidate width: the sum of the paper's gains from the first width above 0 on.

    The gain of a step from d channels is s~[d+1] / (s~[1] + ... + s~[d]), where s~ are the scores in descending order
    at the best trace ratio of d channels (Algorithm 2 of the paper, step 1). Between two candidates widths grow by
    ``step`` channels at a time, which gain (s~[d+1] + ... + s~[d+step]) / (s~[1] + ... + s~[d]). The paper treats
    single layers only. A channel of a coupled group is one more channel, with a cost, in each of its members, so the
    gain counts once for every member. Width 0 and the first above it both get 0: the paper divides by the channels that
    are already kept, so it does not define the worth of a whole branch.
    """
    ratios = ratio_curve(scatter, epsilon)
    log_gain = [-np.inf] if choice.widths[0] == 0 else []
    for narrow, wide in pairwise(choice.widths[len(log_gain) :]):
        steps = []
        for width in range(narrow, wide, step):
            ordered = np.sort(scores(scatter, ratios[width - 1], temperature))[::-1]
            steps.append(_log_ratio(ordered[width : min(width + step, wide)], ordered[:width]))
        log_gain.append(float(np.logaddexp.reduce(steps)) + math.log(choice.members))
    log_gains = np.array(log_gain, dtype=np.float64)
    return GroupValue(choice, np.concatenate([[0.0], np.cumsum(np.exp(log_gains))]), log_gains)


def weigh(
    values: Sequence[GroupValue], cost: CostModel, widths: Mapping[str, int], gap: float | None = None
) -> Allocation:
    """The allocation of ``widths``, which must be candidates: their value and predicted cost."""
    chosen = {group.choice.name: widths[group.choice.name] for group in values}
    value = sum(group.at(chosen[group.choice.name]) for group in values)
    return Allocation(chosen, value, float(cost.predict(chosen)), gap)


def uniform(
    values: Sequence[GroupValue],
    full: Mapping[str, int],
    cost: CostModel,
    budget: float,
    limits: Sequence[Limit] = (),
) -> Allocation:
    """The largest common share of all groups' ``full`` widths that meets ``budget`` and the other ``limits``.

    Each group takes the candidate above 0 that is nearest to this share of its width; of two equally near ones the
    narrower.

    Raises:
        BudgetError: the smallest widths cost more than ``budget``, and so does every larger share.
    """
    above = {group.choice.name: [width for width in group.choice.widths if width] for group in values}
    # The shares above which the next candidate is nearer.
    middles = {
        name: [(narrow + wide) / (2 * full[name]) for narrow, wide in pairwise(widths)]
        for name, widths in above.items()
    }
    for share in sorted({0.0, *chain.from_iterable(middles.values())}, reverse=True):
        widths = {name: above[name][bisect_right(middles[name], share)] for name in above}
        if cost.predict(widths) <= budget and all(limit.holds(widths) for limit in limits):
            return weigh(values, cost, widths)
    raise beyond(widths, cost, budget, limits)


def check_branches(values: Sequence[GroupValue], branches: Sequence[Branch]) -> dict[str, tuple[str, ...]]:
    """For each group the groups that are removed with it, or only itself.

    Raises:
        ValueError: a branch names a group that does not exist, has no candidate 0, or is in two branches; or another
            group has a candidate 0.
    """
    removable = {group.choice.name for group in values if group.choice.widths[0] == 0}
    named = [name for branch in branches for name in branch.groups]
    if sorted(named) != sorted(removable):
        raise ValueError(f"groups with a candidate 0 are {sorted(removable)}, those of the branches {sorted(named)}")
    together = {group.choice.name: (group.choice.name,) for group in values}
    return together | {name: branch.groups for branch in branches for name in branch.groups}


def beyond(widths: Mapping[str, int], cost: CostModel, budget: float, limits: Sequence[Limit]) -> BudgetError:
    """The error for the limit that the smallest network, of ``widths``, exceeds, with what it uses."""
    spent, most, what = cost.predict(widths), budget, "costs"
    over = next((limit for limit in limits if not limit.holds(widths)), None)
    if spent <= budget and over is not None:
        spent, most, what = over.use.predict(widths), over.most, f"takes a {over.name} of"
    return BudgetError(
        f"The smallest network {what} {spent:.4g}, more than the {most:.4g} that the budget allows.",
        "Allow more (--budget), or fewer channels per group (--d-min).",
    )


def log(value: float) -> float:
    """Natural logarithm; -inf for 0."""
    return math.log(value) if value > 0 else -math.inf


def _log_ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
    """Logarithm of sum(exp(part)) / sum(exp(whole)); -inf if ``part`` has only dead channels."""
    above = _log_sum(part)
    return above - _log_sum(whole) if above > -np.inf else -np.inf


def _log_sum(z: NDArray[np.float64]) -> float:
    top = float(z.max())
    return top + float(np.log(np.exp(z - top).sum())) if np.isfinite(top) else -np.inf
