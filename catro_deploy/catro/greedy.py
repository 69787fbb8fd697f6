"""CATRO's Algorithm 2: grow the groups step by step, always where the gain per cost is highest."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from catro_deploy.catro.gains import (
    Allocation,
    CostModel,
    GroupValue,
    Limit,
    beyond,
    check_branches,
    log,
    weigh,
)
from catro_deploy.records import Branch

__all__ = ["greedy"]

# Rounding error of costs, relative to that of the whole network.
ROUNDING = 1e-12


def greedy(
    values: Sequence[GroupValue],
    cost: CostModel,
    budget: float,
    branches: Sequence[Branch] = (),
    *,
    limits: Sequence[Limit] = (),
    only_next: bool = False,
    start: Mapping[str, int] | None = None,
    on_step: Callable[[Mapping[str, int]], object] = lambda widths: None,
) -> Allocation:
    """Grow every group from its smallest width, or from ``start``, always by the best gain per added cost.

    A step leads to any wider candidate; for a removed branch, to candidates of equal rank in all its groups. The widest
    step that costs nothing or reduces the cost comes first. With ``only_next`` a step leads to the next candidate only,
    as in the paper. Growing ends when no step fits into ``budget``: no width remains that is slower than a wider
    candidate. No step exceeds one of the other ``limits``. ``on_step`` is called with the widths that a step changed.

    Raises:
        BudgetError: the smallest widths cost more than ``budget`` or another limit, and no wider ones cost less.
        ValueError: ``branches`` and the groups with a candidate 0 do not agree.
    """
    together = check_branches(values, branches)
    table = {group.choice.name: group for group in values}
    widths = {name: start[name] if start else group.choice.widths[0] for name, group in table.items()}
    spent = cost.predict(widths)
    steps: dict[str, list[_Step]] = {}
    changed = list(table)
    while True:
        for name in {member: None for group in changed for member in together[group]}:
            steps[name] = _steps(name, [table[member] for member in together[name]], cost, widths, only_next)
        step = _first_that_fits(steps.values(), cost, widths, spent, budget, limits)
        if step is None:
            break
        widths.update(step.widths)
        on_step(step.widths)
        spent = cost.predict(widths)
        changed = [neighbour for group in step.widths for neighbour in cost.neighbours(group)]
    if spent > budget or not all(limit.holds(widths) for limit in limits):
        raise beyond(widths, cost, budget, limits)
    return weigh(values, cost, widths)


@dataclass(frozen=True)
class _Step:
    """Widths that change, the added cost, and the logarithm of gain over cost."""

    widths: dict[str, int]
    added: float
    worth: float


def _step(widths: dict[str, int], added: float, log_gain: float) -> _Step:
    return _Step(widths, added, log_gain - math.log(added) if added > 0 else math.inf)


def _steps(
    name: str, together: Sequence[GroupValue], cost: CostModel, widths: Mapping[str, int], only_next: bool
) -> list[_Step]:
    """The steps stored under a group's name: its own or, for the first group of a removed branch, the branch's."""
    names = [group.choice.name for group in together]
    if widths[name]:
        return _wider(together[names.index(name)], cost, widths, only_next)
    return _entries(together, cost, widths, only_next) if name == names[0] else []


def _wider(group: GroupValue, cost: CostModel, widths: Mapping[str, int], only_next: bool) -> list[_Step]:
    """Steps of one group, the widest first."""
    name, candidates = group.choice.name, group.choice.widths
    place = bisect_left(candidates, widths[name])
    last = min(place + 1, len(candidates) - 1) if only_next else len(candidates) - 1
    gains = zip(candidates[place + 1 : last + 1], group.log_gains(place, last), strict=True)
    steps = [_step({name: width}, cost.change(widths, name, width), float(gain)) for width, gain in gains]
    return steps[::-1]


def _entries(members: Sequence[GroupValue], cost: CostModel, widths: Mapping[str, int], only_next: bool) -> list[_Step]:
    """Steps of a whole branch from 0, the widest first."""
    steps = []
    ranks = 1 if only_next else max(len(group.choice.widths) for group in members) - 1
    for rank in range(1, ranks + 1):
        then = {group.choice.name: group.choice.widths[: rank + 1][-1] for group in members}
        gain = sum(group.at(then[group.choice.name]) - group.at(0) for group in members)
        now, added = dict(widths), 0.0
        for name, width in then.items():
            added += cost.change(now, name, width)
            now[name] = width
        steps.append(_step(then, added, log(gain)))
    return steps[::-1]


def _first_that_fits(
    steps: Iterable[list[_Step]],
    cost: CostModel,
    widths: Mapping[str, int],
    spent: float,
    budget: float,
    limits: Sequence[Limit],
) -> _Step | None:
    """The best step that fits; while a limit is exceeded, the one that reduces its use most or costs nothing.

    No step makes an exceeded limit worse.
    """
    limit = max(budget, spent)
    reached = [(one, max(one.most, one.use.predict(widths))) for one in limits]
    over = next((one for one, most in reached if most > one.most), None)

    def rank(step: _Step) -> float:
        if spent > budget:
            return step.added
        return over.use.predict({**widths, **step.widths}) if over else -step.worth

    for step in sorted(chain.from_iterable(steps), key=rank):
        # The cost of the layers that a step touches is known; the cost of the whole network is computed for few steps.
        near = spent + step.added <= limit * (1 + ROUNDING)
        then = {**widths, **step.widths}
        if near and cost.predict(then) <= limit and all(one.use.predict(then) <= most for one, most in reached):
            return step
    return None
