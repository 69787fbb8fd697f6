"""Allocation under a latency limit: over the efficient widths, by the paper's cost, or by one share for all groups."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Literal

import numpy as np

from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import Allocation, CostModel, GroupChoice, GroupValue, uniform, weigh
from catro_deploy.catro.greedy import greedy
from catro_deploy.errors import BudgetError
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.latency.pricing import Pricing
from catro_deploy.pruning.scoring import Scored
from catro_deploy.pruning.selection import values_of
from catro_deploy.reconstruction.correction import corrected, dropped_by, predicted_loss
from catro_deploy.reconstruction.reconstructor import Reconstructor
from catro_deploy.reconstruction.worth import Losses
from catro_deploy.records import Branch, Budget
from catro_deploy.settings import PruneSettings

__all__ = [
    "Method",
    "Problem",
    "Solver",
    "all_widths",
    "exact_by_flops",
    "full_widths",
    "measures_worth",
    "solver_of",
    "values_by_loss",
    "values_for",
]

Method = Literal["exact", "greedy", "flops", "uniform"]

# Steps of the bisection for a share of multiply-accumulates that meets a latency: more would be finer than the
# staircase.
BISECTIONS = 12
# Widths of a group that an exact allocation by multiply-accumulates chooses from: its cost has all pairs of two groups.
EXACT_WIDTHS = 32


@dataclass(frozen=True)
class Problem:
    """An allocation problem: the groups ``scored`` of ``network``, under ``settings``.

    ``worths`` are of the residual branches that may be removed. ``keeper`` measures the worth of widths where
    ``scored`` has no scatters.
    """

    network: Network
    scored: Scored
    settings: PruneSettings
    worths: Mapping[Branch, float] = field(default_factory=dict)
    keeper: Reconstructor | None = None


@dataclass(frozen=True)
class Solver:
    """``solve`` allocates within a limit in microseconds, and raises BudgetError if it finds nothing within.

    ``fastest`` is the network of the least predicted latency among its choices, ``loss`` the predicted loss of given
    widths, in nats, if worth was measured.
    """

    method: Method
    solve: Callable[[float], Allocation]
    fastest: Allocation
    loss: Callable[[Mapping[str, int]], float] | None = None


def measures_worth(settings: PruneSettings, budget: Budget) -> bool:
    """Whether the worth of a width is the measured loss without it, and not its class separation.

    A criterion that compares no classes always needs the measured worth.
    """
    if settings.worth != "auto" or not settings.reconstruct:
        return settings.worth == "measured" and settings.reconstruct
    if settings.criterion == "obs":
        return True
    by_loss = settings.criterion != "l1" and settings.allocation in ("auto", "exact", "greedy")
    return by_loss and budget.unit != "flops"


def solver_of(problem: Problem, pricing: Pricing, limit_us: float | None = None) -> Solver:
    """The solver that the settings ask for.

    Measured worth is that of each width alone, then corrected by the joint loss at ``limit_us``.

    Raises:
        BudgetError: the allocation is to be exact, and a layer depends on more than two groups.
    """
    scored, settings, keeper = problem.scored, problem.settings, problem.keeper
    if settings.allocation in ("flops", "uniform"):
        values = values_for(scored, all_widths(scored, settings), settings, {}, keeper)
        if settings.allocation == "flops":
            return _by_share_of_flops(
                values, FlopsCost(problem.network.layers, scored.prunable, problem.network.other_macs), pricing.cost
            )
        return Solver(
            "uniform", partial(uniform, values, full_widths(scored), pricing.cost), _least(values, pricing.cost)
        )
    cost, branches = pricing.cost, tuple(problem.worths)
    candidates = _efficient_widths(scored, settings, pricing)
    if scored.scatters or keeper is None:
        return _over(values_of(scored, candidates, settings, problem.worths), branches, settings, cost)

    def by_loss(losses: Losses) -> Solver:
        values = values_by_loss(scored, candidates, losses, branches)
        return _over(values, branches, settings, cost)

    def loss_at(widths: Mapping[str, int]) -> float:
        return keeper.loss_at(widths, [branch.name for branch in dropped_by(widths, branches)])

    losses = keeper.losses(candidates, branches)
    if limit_us is not None and settings.reconstruct:
        with contextlib.suppress(BudgetError):  # solving for the limit raises it again
            losses = corrected(losses, branches, lambda some: by_loss(some).solve(limit_us), loss_at, keeper.progress)
    return replace(by_loss(losses), loss=partial(predicted_loss, losses, branches))


def _over(values: Sequence[GroupValue], branches: Sequence[Branch], settings: PruneSettings, cost: LayerCost) -> Solver:
    fastest = _fastest(values, cost)
    if _method(settings, values, cost) == "greedy":
        return Solver("greedy", lambda limit_us: greedy(values, cost, limit_us, branches), fastest)
    return Solver("exact", lambda limit_us: exact(values, cost, limit_us, branches), fastest)


def values_for(
    scored: Scored,
    candidates: Mapping[str, tuple[int, ...]],
    settings: PruneSettings,
    worths: Mapping[Branch, float],
    keeper: Reconstructor | None,
) -> list[GroupValue]:
    """The worth of the ``candidates``: by class separation, or by loss where ``scored`` has no scatters.

    One share for all groups needs no worth; without scatters it is 0.
    """
    if scored.scatters or keeper is None:
        return values_of(scored, candidates, settings, worths)
    if settings.allocation == "uniform":
        choices = [GroupChoice(group.name, candidates[group.name], len(group.producers)) for group in scored.prunable]
        return [GroupValue(choice, np.zeros(len(choice.widths))) for choice in choices]
    branches = tuple(worths)
    return values_by_loss(scored, candidates, keeper.losses(candidates, branches), branches)


def values_by_loss(
    scored: Scored, candidates: Mapping[str, tuple[int, ...]], losses: Losses, branches: Sequence[Branch]
) -> list[GroupValue]:
    """The worth of the ``candidates`` of each prunable group: the loss, in nats, that they avoid.

    That is compared with the smallest width, or with removing the group's branch, whose loss is split equally over its
    groups. A width that loses more than the removed branch is worth nothing.
    """
    entry = {name: losses.branches[b.name] / len(b.groups) for b in branches for name in b.groups}
    values = []
    for group in scored.prunable:
        name, widths = group.name, candidates[group.name]
        lost = np.maximum.accumulate([losses.widths[name][width] for width in reversed(widths)])[::-1]
        spared = np.maximum(0, entry.get(name, lost[0]) - lost)
        if name in entry:
            widths, spared = (0, *widths), np.concatenate([[0.0], spared])
        values.append(GroupValue(GroupChoice(name, widths, len(group.producers)), spared))
    return values


def full_widths(scored: Scored) -> dict[str, int]:
    """The width of every prunable group before pruning."""
    return {group.name: group.width for group in scored.prunable}


def all_widths(scored: Scored, settings: PruneSettings) -> dict[str, tuple[int, ...]]:
    """Every width from d_min to the largest allowed, ``step`` apart; one apart where all groups keep one share."""
    step = 1 if settings.allocation == "uniform" else settings.step
    bounds = {group.name: _bounds(group.width, settings) for group in scored.prunable}
    return {name: (*range(low, high, step), high) for name, (low, high) in bounds.items()}


def _efficient_widths(scored: Scored, settings: PruneSettings, pricing: Pricing) -> dict[str, tuple[int, ...]]:
    """The allowed efficient widths; where there is none, the largest allowed width."""
    found = {}
    for group in scored.prunable:
        low, high = _bounds(group.width, settings)
        allowed = tuple(width for width in pricing.staircases[group.name].candidates if low <= width <= high)
        found[group.name] = allowed or (high,)
    return found


def _bounds(width: int, settings: PruneSettings) -> tuple[int, int]:
    largest = max(1, math.floor(settings.max_width * width))
    return min(settings.d_min, largest), largest


def exact_by_flops(
    values: Sequence[GroupValue], cost: FlopsCost, limit: float, settings: PruneSettings
) -> tuple[Method, Mapping[str, int]]:
    """Widths within ``limit`` multiply-accumulates, and the method that found them.

    First an optimum over some widths of each group; from there groups grow through all widths as far as the limit
    allows.
    """
    some = [_thinned(group) for group in values]
    method = _method(settings, some, cost)
    found = exact(some, cost, limit) if method == "exact" else greedy(some, cost, limit)
    return method, greedy(values, cost, limit, start=found.widths).widths


def _thinned(group: GroupValue) -> GroupValue:
    """At most EXACT_WIDTHS of the candidates, evenly spaced, with the smallest and the largest."""
    widths = group.choice.widths
    places = np.linspace(0, len(widths) - 1, min(len(widths), EXACT_WIDTHS)).round().astype(int)
    return GroupValue(replace(group.choice, widths=tuple(widths[place] for place in places)), group.value[places])


def _method(settings: PruneSettings, values: Sequence[GroupValue], cost: LayerCost) -> Literal["exact", "greedy"]:
    if settings.allocation == "greedy":
        return "greedy"
    try:
        cost.tables({group.choice.name: group.choice.widths for group in values})
    except BudgetError:
        if settings.allocation == "exact":
            raise
        return "greedy"
    return "exact"


def _by_share_of_flops(values: Sequence[GroupValue], flops: CostModel, latency: CostModel) -> Solver:
    """The paper's widths at the largest share of multiply-accumulates whose predicted latency is within a limit."""
    low = flops.predict({group.choice.name: group.choice.smallest for group in values})
    high = flops.predict({group.choice.name: group.choice.widths[-1] for group in values})

    @cache
    def at(macs: float) -> Allocation:
        return weigh(values, latency, greedy(values, flops, macs, only_next=True).widths)

    def solve(limit_us: float) -> Allocation:
        if at(low).cost > limit_us:
            raise BudgetError(f"The smallest network takes more than {limit_us:.0f} us.")
        if at(high).cost <= limit_us:
            return at(high)
        within, above = low, high
        for _ in range(BISECTIONS):
            middle = math.sqrt(within * above)
            within, above = (middle, above) if at(middle).cost <= limit_us else (within, middle)
        return at(within)

    return Solver("flops", solve, at(low))


def _least(values: Sequence[GroupValue], cost: CostModel) -> Allocation:
    """All groups at their smallest width, those of removable branches at 0."""
    return weigh(values, cost, {group.choice.name: group.choice.widths[0] for group in values})


def _fastest(values: Sequence[GroupValue], cost: CostModel) -> Allocation:
    """All removable branches removed, and no other group faster at another width with the rest unchanged."""
    widths = dict(_least(values, cost).widths)
    for _ in values:  # a few passes are enough: what one group gains by another width hardly depends on the others
        before = dict(widths)
        for group in values:
            name = group.choice.name
            if widths[name]:
                widths[name] = min(group.choice.widths, key=lambda width: cost.change(widths, name, width))
        if widths == before:
            break
    return weigh(values, cost, widths)
