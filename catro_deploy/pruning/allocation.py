"""From budgets to widths: for multiply-accumulates in one step, for latency in a closed loop with the target.

The loop: allocate with the cost models, build the network, time it interleaved with the original, compute its file's
footprint, correct the models with the measurements and allocate again, until all budgets are met and one is nearly used
up.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import Allocation, GroupValue, Limit, uniform, weigh
from catro_deploy.catro.greedy import greedy
from catro_deploy.errors import BudgetError
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.latency.pricing import Pricing
from catro_deploy.progress import Progress, Silent
from catro_deploy.pruning.budgets import Counted, Priced, axes_of, plan_of
from catro_deploy.pruning.closed_loop import APART, Attempt, Axis, Measure, closed_loop
from catro_deploy.pruning.missed import allow, best_of, cannot, require_attainable, what_stays
from catro_deploy.pruning.solvers import Constraint, Method, Problem, Solver, exact_by_flops, limited, solver_of
from catro_deploy.pruning.values import all_widths, full_widths, values_for
from catro_deploy.records import BudgetPlan, LatencyPlan, Round
from catro_deploy.units import counted

__all__ = ["Decision", "by_flops", "by_latency"]

# Measured times must differ by at least this share of the predicted difference, both on a logarithmic scale. An
# overhead of half the budget, which no model of layers has, leaves a fifth of the difference.
FOLLOWS = 0.2
# Delays that use less of a budget hardly change which network meets it.
FEW_DELAYS = 0.2


@dataclass(frozen=True)
class Decision:
    """The width of every group that may be pruned, 0 if its branch is removed; with a latency budget, the search.

    ``latency_on`` has the search on further targets, ``budgets`` the network's use of each budget. ``path`` has the
    steps of Algorithm 2 with the paper's cost: which group grew, and to which width. ``loss`` is the predicted loss of
    the network, in nats.
    """

    method: Method
    widths: Mapping[str, int]
    latency: LatencyPlan | None = None
    latency_on: Mapping[str, LatencyPlan] = field(default_factory=dict)
    path: tuple[tuple[str, int], ...] = ()
    loss: float | None = None
    budgets: tuple[BudgetPlan, ...] = ()


def by_flops(
    problem: Problem,
    counted: Counted | None = None,
    measure: Measure | None = None,
    progress: Progress | None = None,
) -> Decision:
    """Widths by Algorithm 2 of the paper (or by the settings' ``allocation``) under a budget of multiply-accumulates.

    ``counted`` and ``measure``, which computes the footprint of a candidate's file, are needed if budgets limit that.

    Raises:
        BudgetError: no network within the bounds of the settings meets the budget of multiply-accumulates.
        MissedError: no network meets the other budgets.
    """
    network, scored, settings = problem.network, problem.scored, problem.settings
    budget, cost = settings.given_budget, FlopsCost(network.layers, scored.prunable, network.other_macs)
    counted = counted or Counted(cost, problem.whole_macs)
    candidates = all_widths(scored, settings)
    whole = problem.whole_macs
    least = {name: widths[0] for name, widths in candidates.items()}
    if cost.predict(least) > budget.limit(whole):
        raise BudgetError(
            f"The budget {budget} is below the smallest network with these settings, which needs "
            f"{math.ceil(cost.predict(least) / whole * 1e4) / 100:g}%flops.{_what_stays_of_macs(problem)}",
            allow("Allow that much (--budget)", problem),
        )
    axes = axes_of(settings.budgets, (), counted)
    require_attainable(axes[1:], least, problem)
    values = values_for(scored, candidates, settings, {}, problem.keeper)
    constraints = [Constraint(axis.name, axis.use) for axis in axes[1:]]
    decided: dict[tuple[int, ...], Decision] = {}

    def solve(limit: float, *others: float) -> Allocation:
        found = _by_flops_within(limit, limited(constraints, others), values, cost, problem)
        decided[tuple(found.widths.values())] = found
        return weigh(values, cost, found.widths)

    if measure is None:
        taken, measured = solve(*(axis.most for axis in axes)), None
    else:
        solver = Solver("flops", solve, weigh(values, cost, least), least)
        attempts = closed_loop(solver, measure, axes, progress or Silent())
        place = best_of(attempts, axes, problem)
        taken, measured = attempts[place].allocation, attempts[place].measured
    budgets = plan_of(settings.budgets, (), counted, taken.widths, measured)
    return replace(decided[tuple(taken.widths.values())], budgets=budgets)


def _by_flops_within(
    limit: float, limits: Sequence[Limit], values: Sequence[GroupValue], cost: FlopsCost, problem: Problem
) -> Decision:
    """The widths of the highest value within ``limit`` multiply-accumulates and the other ``limits``."""
    scored, settings = problem.scored, problem.settings
    match settings.allocation:
        case "uniform":
            return Decision("uniform", uniform(values, full_widths(scored), cost, limit, limits).widths)
        case "auto" | "exact" if not scored.scatters:
            return Decision(*exact_by_flops(values, cost, limit, settings, limits))
        case "exact":
            return Decision("exact", exact(values, cost, limit, limits=limits).widths)
        case _:
            path: list[tuple[str, int]] = []
            widths = greedy(
                values,
                cost,
                limit,
                limits=limits,
                only_next=True,
                on_step=lambda changed: path.extend(changed.items()),
            ).widths
            return Decision("flops", widths, path=tuple(path))


def _what_stays_of_macs(problem: Problem) -> str:
    network = problem.network
    return what_stays(problem, {layer.name: layer.macs for layer in network.layers}, network.macs, network.other_macs)


def by_latency(
    problem: Problem,
    devices: Sequence[Priced],
    counted: Counted | None,
    measure: Measure | None,
    progress: Progress,
) -> Decision:
    """Widths under budgets of latency on each of ``devices``, and of what is ``counted``.

    ``measure`` times a candidate on all devices, and computes its file's footprint; None if everything is estimated.

    Raises:
        BudgetError: an exact allocation is requested, but a layer depends on more than two groups.
        MissedError: the budgets cannot be met; the error names the one that was missed, and the nearest network.
    """
    full, settings, first = full_widths(problem.scored), problem.settings, devices[0].pricing
    if counted is None:
        cost = FlopsCost(problem.network.layers, problem.scored.prunable, problem.network.other_macs)
        counted = Counted(cost, problem.whole_macs)
    axes = axes_of(settings.budgets, devices, counted)
    constraints = [Constraint(axis.name, axis.use) for axis in axes[1:]]
    solver = solver_of(problem, first, [axis.most for axis in axes], constraints, _worth_having(devices))
    require_attainable(axes[len(devices) :], solver.smallest, problem)
    attempts, place, measured = [], None, None
    if measure is None:
        found = _estimated(solver, axes, first, problem)
    else:
        attempts = closed_loop(solver, measure, axes, progress)
        place = best_of(attempts, axes, problem, first, solver)
        found, measured = attempts[place].allocation, attempts[place].measured
    plans = [_latency_plan(at, device, axes, attempts, place, found, full) for at, device in enumerate(devices)]
    return Decision(
        solver.method,
        found.widths,
        plans[0],
        {device.name: plan for device, plan in zip(devices[1:], plans[1:], strict=True)},
        loss=solver.loss(found.widths) if solver.loss else None,
        budgets=plan_of(settings.budgets, devices, counted, found.widths, measured),
    )


def _latency_plan(
    at: int,
    device: Priced,
    axes: Sequence[Axis],
    attempts: Sequence[Attempt],
    taken: int | None,
    found: Allocation,
    full: Mapping[str, int],
) -> LatencyPlan:
    """How the widths follow from latency on ``device``, which is at index ``at`` of all devices."""
    pricing = device.pricing
    before, after = pricing.cost.by_layer(full), pricing.cost.by_layer(found.widths)
    warnings = [*pricing.warnings, *_not_measured(pricing, found)]
    if taken is not None and device.is_measured:
        measured = attempts[taken].measured.devices[at].warnings
        warnings += [f"Closed loop, round {taken + 1}: {warning}" for warning in measured]
        warnings += _contradiction(pricing, attempts, at)
        warnings += _delays(attempts[taken].delays[at])
    return LatencyPlan(
        how=pricing.how,
        source=pricing.source,
        budget_us=axes[at].most,
        original_us=pricing.original_us,
        predicted_us=pricing.cost.predict(found.widths),
        rounds=tuple(
            _round(attempt, at, taken=place == taken) for place, attempt in enumerate(attempts) if device.is_measured
        ),
        by_layer={layer: (before[layer], after[layer]) for layer in before},
        staircases=dict(pricing.staircases),
        errors=pricing.errors,
        gap=found.gap,
        warnings=tuple(warnings),
    )


def _contradiction(pricing: Pricing, attempts: Sequence[Attempt], at: int) -> list[str]:
    """A warning if measurements hardly follow the predictions: the widths may have been chosen by wrong prices."""
    telling = [attempt for attempt in attempts if not attempt.is_delayed]
    low, high = (pick(telling, key=lambda one: one.predicted[at]) for pick in (min, max))
    predicted, measured = high.predicted[at] / low.predicted[at], high.used[at] / low.used[at]
    if predicted < 1 / APART or math.log(measured) >= FOLLOWS * math.log(predicted):
        return []
    again = " Measure the layers again: catro-deploy profile --force" if pricing.how == "measured" else ""
    return [
        f"The latency model does not describe these networks: it predicts a factor of {predicted:.2g} between round "
        f"{attempts.index(low) + 1} and round {attempts.index(high) + 1}, measured was {measured:.2g}.{again}"
    ]


def _delays(share: float) -> list[str]:
    """A warning if delays that smaller networks have as well use a large ``share`` of a budget."""
    if share < FEW_DELAYS:
        return []
    return [
        f"Delays that smaller networks have as well, for example by other processes, use {share:.0%} of the budget. "
        "On a quiet machine, a larger network may meet it."
    ]


def _round(attempt: Attempt, at: int, *, taken: bool) -> Round:
    found = attempt.measured.devices[at]
    return Round(
        predicted_us=attempt.predicted[at],
        measured_us=found.candidate_us,
        original_us=found.original_us,
        speedup=found.speedup,
        widths=dict(attempt.allocation.widths),
        taken=taken,
    )


def _worth_having(devices: Sequence[Priced]) -> dict[str, tuple[int, ...]]:
    """The widths of each group that are efficient on any of ``devices``."""
    found: dict[str, set[int]] = {}
    for device in devices:
        for name, stairs in device.pricing.staircases.items():
            found.setdefault(name, set()).update(stairs.candidates)
    return {name: tuple(sorted(widths)) for name, widths in found.items()}


def _not_measured(pricing: Pricing, found: Allocation) -> list[str]:
    layers = pricing.estimated(found.widths)
    if not layers:
        return []
    which = counted(len(layers), "layer")
    return [f"The predicted times of {which} are estimates: there is no measurement at their widths."]


def _estimated(solver: Solver, axes: Sequence[Axis], first: Pricing, problem: Problem) -> Allocation:
    try:
        return solver.solve(*(axis.most for axis in axes))
    except BudgetError:
        us = solver.fastest.cost
        raise cannot(problem, us, us / first.original_us, "estimate", first) from None
