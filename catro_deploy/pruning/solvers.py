"""Allocation under a latency limit: over efficient widths, by the paper's cost, or with one share for all groups."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import (
    Allocation,
    Bounded,
    CostModel,
    GroupValue,
    Limit,
    beyond,
    uniform,
    weigh,
)
from catro_deploy.catro.greedy import greedy
from catro_deploy.errors import BudgetError
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.latency.pricing import Pricing
from catro_deploy.pruning.scoring import Scored
from catro_deploy.pruning.selection import values_of
from catro_deploy.pruning.values import all_widths, efficient_widths, full_widths, values_by_loss, values_for
from catro_deploy.reconstruction.correction import corrected, dropped_by, predicted_loss
from catro_deploy.reconstruction.reconstructor import Reconstructor
from catro_deploy.reconstruction.worth import Losses
from catro_deploy.records import Branch
from catro_deploy.settings import PruneSettings

__all__ = [
    "Constraint",
    "Method",
    "Problem",
    "Solver",
    "exact_by_flops",
    "limited",
    "measures_worth",
    "solver_of",
]

Method = Literal["exact", "greedy", "flops", "uniform"]

# Most widths per group in an exact allocation by multiply-accumulates, whose cost has all pairs for two groups.
EXACT_WIDTHS = 32


@dataclass(frozen=True)
class Problem:
    """An allocation problem: the groups ``scored`` of ``network``, under ``settings``.

    ``worths`` are of the residual branches that may be removed. ``keeper`` measures the worth of widths if ``scored``
    has no scatters. Budgets are shares of ``original_macs``; None: those of ``network``.
    """

    network: Network
    scored: Scored
    settings: PruneSettings
    worths: Mapping[Branch, float] = field(default_factory=dict)
    keeper: Reconstructor | None = None
    original_macs: int | None = None

    @property
    def whole_macs(self) -> int:
        """Multiply-accumulates of the network that budgets are shares of."""
        return self.original_macs or self.network.macs


@dataclass(frozen=True)
class Constraint:
    """A resource that is limited in addition to what the budget counts; ``name`` says which."""

    name: str
    use: Bounded


@dataclass(frozen=True)
class Solver:
    """``solve`` allocates within limits, and raises BudgetError if it finds nothing within them.

    The first limit is in microseconds or multiply-accumulates, the others are those of the constraints, each in its
    unit. ``fastest`` is the network of the lowest predicted latency among its choices, ``smallest`` has the smallest
    widths, ``loss`` returns the predicted loss at given widths, in nats, if worth was measured.
    """

    method: Method
    solve: Callable[..., Allocation]
    fastest: Allocation
    smallest: Mapping[str, int]
    loss: Callable[[Mapping[str, int]], float] | None = None


def measures_worth(settings: PruneSettings) -> bool:
    """Whether the worth of a width is measured as the loss without it, instead of class separation.

    A criterion that compares no classes always needs the measured worth.
    """
    if settings.worth != "auto" or not settings.reconstruct:
        return settings.worth == "measured" and settings.reconstruct
    if settings.criterion == "obs":
        return True
    by_loss = settings.criterion != "l1" and settings.allocation in ("auto", "exact", "greedy")
    return by_loss and settings.is_timed


def solver_of(
    problem: Problem,
    pricing: Pricing,
    limits: Sequence[float] = (),
    constraints: Sequence[Constraint] = (),
    candidates: Mapping[str, Sequence[int]] | None = None,
) -> Solver:
    """The solver for the settings' allocation, by latency and under ``constraints``.

    Worth, if measured, is that of each width alone, then corrected by the joint loss within ``limits``, if given.
    ``candidates`` are the efficient widths of each group; None: those of ``pricing``.

    Raises:
        BudgetError: an exact allocation is requested, but a layer depends on more than two groups.
    """
    scored, settings, keeper = problem.scored, problem.settings, problem.keeper
    cost, branches = pricing.cost, tuple(problem.worths)
    if settings.allocation in ("flops", "uniform"):
        values = values_for(scored, all_widths(scored, settings), settings, {}, keeper)
        if settings.allocation == "flops":
            flops = FlopsCost(problem.network.layers, scored.prunable, problem.network.other_macs)
            return _by_share_of_flops(values, flops, cost, constraints)

        def even(limit_us: float, *others: float) -> Allocation:
            return uniform(values, full_widths(scored), cost, limit_us, limited(constraints, others))

        least = _least(values, cost)
        return Solver("uniform", even, least, least.widths)
    worth_having = candidates or {name: stairs.candidates for name, stairs in pricing.staircases.items()}
    useful = efficient_widths(scored, settings, worth_having)
    if scored.scatters or keeper is None:
        return _over(values_of(scored, useful, settings, problem.worths), branches, settings, cost, constraints)

    def by_loss(losses: Losses) -> Solver:
        values = values_by_loss(scored, useful, losses, branches)
        return _over(values, branches, settings, cost, constraints)

    def loss_at(widths: Mapping[str, int]) -> float:
        return keeper.loss_at(widths, [branch.name for branch in dropped_by(widths, branches)])

    losses = keeper.losses(useful, branches)
    if limits and settings.reconstruct:
        with contextlib.suppress(BudgetError):  # solving for the limits raises it again
            losses = corrected(
                losses,
                branches,
                lambda some: by_loss(some).solve(*limits),
                loss_at,
                keeper.progress,
                keeper.effort.networks,
            )
    return replace(by_loss(losses), loss=partial(predicted_loss, losses, branches))


def limited(constraints: Sequence[Constraint], most: Sequence[float]) -> list[Limit]:
    """A limit for each of ``constraints``."""
    return [Limit(one.name, one.use, limit) for one, limit in zip(constraints, most, strict=True)]


def _over(
    values: Sequence[GroupValue],
    branches: Sequence[Branch],
    settings: PruneSettings,
    cost: LayerCost,
    constraints: Sequence[Constraint],
) -> Solver:
    method = _method(settings, values, cost, constraints)
    allocate = greedy if method == "greedy" else exact

    def solve(limit_us: float, *others: float) -> Allocation:
        return allocate(values, cost, limit_us, branches, limits=limited(constraints, others))

    return Solver(method, solve, _fastest(values, cost), _least(values, cost).widths)


def exact_by_flops(
    values: Sequence[GroupValue],
    cost: FlopsCost,
    limit: float,
    settings: PruneSettings,
    limits: Sequence[Limit] = (),
) -> tuple[Method, Mapping[str, int]]:
    """Widths within ``limit`` multiply-accumulates and the other ``limits``, and the method that found them.

    The first step is an optimum over some widths of each group; from there groups grow through all widths as far as the
    limits allow.
    """
    some = [_thinned(group) for group in values]
    method = _method(settings, some, cost, limits)
    allocate = exact if method == "exact" else greedy
    found = allocate(some, cost, limit, limits=limits)
    return method, greedy(values, cost, limit, limits=limits, start=found.widths).widths


def _thinned(group: GroupValue) -> GroupValue:
    """At most EXACT_WIDTHS of the candidates, evenly spaced, with the smallest and the largest."""
    widths = group.choice.widths
    places = np.linspace(0, len(widths) - 1, min(len(widths), EXACT_WIDTHS)).round().astype(int)
    return GroupValue(replace(group.choice, widths=tuple(widths[place] for place in places)), group.value[places])


def _method(
    settings: PruneSettings, values: Sequence[GroupValue], cost: LayerCost, limits: Sequence[Constraint | Limit]
) -> Literal["exact", "greedy"]:
    if settings.allocation == "greedy":
        return "greedy"
    try:
        candidates = {group.choice.name: group.choice.widths for group in values}
        for one in (cost, *(limit.use for limit in limits)):
            one.rows(candidates)
    except BudgetError:
        if settings.allocation == "exact":
            raise
        return "greedy"
    return "exact"


def _by_share_of_flops(
    values: Sequence[GroupValue], flops: CostModel, latency: LayerCost, constraints: Sequence[Constraint]
) -> Solver:
    """The last network on the path of Algorithm 2 by multiply-accumulates that is predicted to be within the limits.

    All networks on the path are tried, since latency rises and falls along it: with widths that fill vector registers,
    a network with more multiply-accumulates is often faster.
    """
    path = [_least(values, flops).widths]
    greedy(values, flops, math.inf, only_next=True, on_step=lambda changed: path.append({**path[-1], **changed}))
    models: list[Bounded] = [latency, *(one.use for one in constraints)]
    used = np.array([[model.predict(widths) for model in models] for widths in path])
    fastest = path[int(np.argmin(used[:, 0]))]

    def solve(limit_us: float, *others: float) -> Allocation:
        (within,) = np.nonzero((used <= (limit_us, *others)).all(axis=1))
        if not len(within):
            raise beyond(fastest, latency, limit_us, limited(constraints, others))
        return weigh(values, latency, path[within[-1]])

    return Solver("flops", solve, weigh(values, latency, fastest), path[0])


def _least(values: Sequence[GroupValue], cost: CostModel) -> Allocation:
    """All groups at their smallest width, those of removable branches at 0."""
    return weigh(values, cost, {group.choice.name: group.choice.widths[0] for group in values})


def _fastest(values: Sequence[GroupValue], cost: CostModel) -> Allocation:
    """The network without removable branches in which no single group would be faster at another width."""
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
