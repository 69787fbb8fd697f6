"""How many channels each group gets: CATRO's Algorithm 2, and one share for all groups to compare it with."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from catro_deploy.core.scatter import Scatter
from catro_deploy.core.trace_ratio import ratio_curve, scores
from catro_deploy.errors import BudgetError

__all__ = ["CostModel", "GroupChoice", "GroupGains", "greedy", "log_gains", "uniform"]


class CostModel(Protocol):
    """What a network costs, by the widths of its groups. The unit is the budget's."""

    def predict(self, widths: Mapping[str, int]) -> float:
        """Cost of the whole network."""

    def change(self, widths: Mapping[str, int], group: str, width: int) -> float:
        """Cost added by setting ``group`` to ``width``, over all layers that the group touches."""

    def neighbours(self, group: str) -> Sequence[str]:
        """The groups whose cost changes when ``group`` changes, itself among them."""


@dataclass(frozen=True)
class GroupChoice:
    """The widths that a group may take, from ``smallest`` to ``largest``, and how many layers produce its channels."""

    name: str
    smallest: int
    largest: int
    members: int = 1


@dataclass(frozen=True)
class GroupGains:
    """``log_gain[d - smallest]``: logarithm of what one step from d channels adds to the group's class separation."""

    choice: GroupChoice
    log_gain: NDArray[np.float64]


def log_gains(choice: GroupChoice, scatter: Scatter, *, step: int, temperature: float, epsilon: float) -> GroupGains:
    """Gain of each step, (s~[d+1] + ... + s~[d+step]) / (s~[1] + ... + s~[d]), in logarithms.

    s~ are the scores in descending order at the best trace ratio of d channels (Algorithm 2 of the paper, step 1). The
    paper knows single layers only. A channel of a coupled group is one channel more for each of its members, and costs
    something in each, so the gain counts once for every member.
    """
    ratios = ratio_curve(scatter, epsilon)
    gains = []
    for width in range(choice.smallest, choice.largest):
        ordered = np.sort(scores(scatter, ratios[width - 1], temperature))[::-1]
        gains.append(_log_sum(ordered[width : min(width + step, choice.largest)]) - _log_sum(ordered[:width]))
    return GroupGains(choice, np.array(gains, dtype=np.float64) + math.log(choice.members))


def greedy(gains: Sequence[GroupGains], cost: CostModel, budget: float, *, step: int) -> dict[str, int]:
    """Grow every group from its smallest width, always by the best gain per cost, while ``budget`` allows it.

    A step that no longer fits is passed over for cheaper ones of other groups.

    Raises:
        BudgetError: the smallest widths cost more than ``budget``.
    """
    table = {group.choice.name: group for group in gains}
    widths = {name: group.choice.smallest for name, group in table.items()}
    spent = _smallest(cost, widths, budget)
    worth = {name: _worth(group, cost, widths, step) for name, group in table.items()}
    while worth:
        name = max(worth, key=lambda group: worth[group][0])
        _, width, added = worth[name]
        if width == widths[name] or spent + added > budget:
            del worth[name]
            continue
        widths[name] = width
        spent += added
        for neighbour in cost.neighbours(name):
            if neighbour in worth:
                worth[neighbour] = _worth(table[neighbour], cost, widths, step)
    return widths


def uniform(
    choices: Sequence[GroupChoice], widths: Mapping[str, int], cost: CostModel, budget: float
) -> dict[str, int]:
    """The largest common share of all groups' ``widths`` that meets ``budget``, within each group's bounds.

    Raises:
        BudgetError: the smallest widths cost more than ``budget``.
    """

    def at(share: float) -> dict[str, int]:
        return {c.name: min(c.largest, max(c.smallest, math.floor(share * widths[c.name] + 0.5))) for c in choices}

    _smallest(cost, {c.name: c.smallest for c in choices}, budget)
    shares = sorted({(d - 0.5) / widths[c.name] + 1e-9 for c in choices for d in range(c.smallest, c.largest + 1)})
    low, high = 0, len(shares)
    while low < high:
        middle = (low + high) // 2
        if cost.predict(at(shares[middle])) <= budget:
            low = middle + 1
        else:
            high = middle
    return at(shares[low - 1] if low else 0.0)


def _worth(group: GroupGains, cost: CostModel, widths: Mapping[str, int], step: int) -> tuple[float, int, float]:
    """Logarithm of gain over cost of the group's next step, the width it leads to, and the cost it adds."""
    choice = group.choice
    now = widths[choice.name]
    then = min(now + step, choice.largest)
    if then == now:
        return -np.inf, now, 0.0
    added = cost.change(widths, choice.name, then)
    gain = float(group.log_gain[now - choice.smallest])
    # A step that costs nothing comes first, whatever it gains.
    return (gain - float(np.log(added)) if added > 0 else np.inf), then, added


def _smallest(cost: CostModel, widths: Mapping[str, int], budget: float) -> float:
    spent = cost.predict(widths)
    if spent > budget:
        raise BudgetError(
            f"The smallest network costs {spent:.4g}, more than the {budget:.4g} that the budget allows.",
            "Allow more (--budget), fewer channels per group (--d-min), or pruning of the first convolution.",
        )
    return spent


def _log_sum(z: NDArray[np.float64]) -> float:
    top = float(z.max())
    return top + float(np.log(np.exp(z - top).sum())) if np.isfinite(top) else -np.inf
