"""From a budget to widths: directly for multiply-accumulates, in a closed loop with the target for latency.

The loop: allocate by the cost model, build the network, time it interleaved with the original, correct the model by
what was measured, allocate again, until the measured latency is within the budget and uses nearly all of it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import Allocation, uniform
from catro_deploy.catro.greedy import greedy
from catro_deploy.errors import BudgetError, MissedError
from catro_deploy.latency.candidate import CandidateLatency
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.latency.pricing import Pricing
from catro_deploy.progress import Progress
from catro_deploy.pruning.solvers import (
    Method,
    Problem,
    Solver,
    all_widths,
    exact_by_flops,
    full_widths,
    solver_of,
    values_for,
)
from catro_deploy.records import Budget, LatencyPlan, Round

__all__ = ["Decision", "Measure", "by_flops", "by_latency"]

ROUNDS = 6
# A network that uses this much of the budget ends the loop.
NEARLY_ALL = 0.97
# How far below the budget the next round aims once the model is corrected, since measurements vary. It doubles whenever
# the budget is still missed: a network that is slightly too small is usable, one that misses is not.
MARGIN = 0.01
# A profile whose original differs by more from the one measured in the loop is not trusted to name the fastest network.
STALE = 0.2
# How many reasons for a missed budget are named, and the least share of the cost that each must have.
MOST_REASONS, LEAST_SHARE = 3, 0.01

Measure = Callable[[Mapping[str, int]], CandidateLatency]


@dataclass(frozen=True)
class Decision:
    """The width of every group that may be pruned, 0 where its branch is removed; with a latency budget, the search.

    ``path`` are the steps of Algorithm 2 by the paper's cost: which group grew, and to which width. ``loss`` is the
    network's predicted loss, in nats.
    """

    method: Method
    widths: Mapping[str, int]
    latency: LatencyPlan | None = None
    path: tuple[tuple[str, int], ...] = ()
    loss: float | None = None


def by_flops(problem: Problem) -> Decision:
    """Widths by Algorithm 2 of the paper (or as ``allocation`` says) under a budget of multiply-accumulates.

    Raises:
        BudgetError: no network within the bounds of the settings meets their budget.
    """
    network, scored, settings = problem.network, problem.scored, problem.settings
    budget, cost = settings.given_budget, FlopsCost(network.layers, scored.prunable, network.other_macs)
    candidates = all_widths(scored, settings)
    whole = network.macs
    limit = budget.limit(whole)
    least = cost.predict({name: widths[0] for name, widths in candidates.items()})
    if least > limit:
        raise BudgetError(
            f"The budget {budget} is below the smallest network of these settings, which needs "
            f"{math.ceil(least / whole * 1e4) / 100:g}%flops.{_what_stays_of_macs(problem)}",
            "Allow that much (--budget), or fewer channels per group (--d-min), or pruning of the first convolution.",
        )
    values = values_for(scored, candidates, settings, {}, problem.keeper)
    match settings.allocation:
        case "uniform":
            return Decision("uniform", uniform(values, full_widths(scored), cost, limit).widths)
        case "auto" | "exact" if not scored.scatters:
            return Decision(*exact_by_flops(values, cost, limit, settings))
        case "exact":
            return Decision("exact", exact(values, cost, limit).widths)
        case _:
            path: list[tuple[str, int]] = []
            found = greedy(values, cost, limit, only_next=True, on_step=lambda widths: path.extend(widths.items()))
            return Decision("flops", found.widths, path=tuple(path))


def _what_stays_of_macs(problem: Problem) -> str:
    network = problem.network
    return _what_stays(problem, {layer.name: layer.macs for layer in network.layers}, network.macs, network.other_macs)


def _what_stays(problem: Problem, costs: Mapping[str, float], whole: float, other: float = 0.0) -> str:
    """The unprunable channels whose layers cost most, with the reasons; empty where that is little.

    ``costs`` are those of layers, ``other`` that of everything else, ``whole`` that of the network.
    """
    fixed = problem.scored.fixed
    cost: dict[str, float] = {}
    first: dict[str, str] = {}
    for group in problem.network.groups:
        if reason := fixed.get(group.name, ""):
            first.setdefault(reason, group.producers[0])
            cost[reason] = cost.get(reason, 0.0) + sum(costs.get(name, 0.0) for name in group.producers)
    most = sorted(cost.items(), key=lambda item: -item[1])[:MOST_REASONS]
    shares = [(f"{first[reason]}: {reason}", spent / whole) for reason, spent in most]
    if other:
        shares.append(("attention, recurrent layers and products of feature maps", other / whole))
    return "".join(f"\n{share:.1%} of the cost stays with {words}" for words, share in shares if share >= LEAST_SHARE)


def by_latency(problem: Problem, pricing: Pricing, measure: Measure | None, progress: Progress) -> Decision:
    """Widths under a budget of latency; ``measure`` times a candidate on the target, None if latency is estimated.

    Raises:
        BudgetError: the allocation is to be exact, and a layer depends on more than two groups.
        MissedError: the budget cannot be met; the error names the fastest network that was found.
    """
    full, budget = full_widths(problem.scored), problem.settings.given_budget
    budget_us = budget.limit(pricing.original_us)
    solver = solver_of(problem, pricing, budget_us)
    before, taken = pricing.cost.by_layer(full), None
    stays = _what_stays(problem, before, pricing.original_us)
    if measure is None:
        attempts, found = [], _estimated(solver, budget, budget_us, pricing.original_us, stays)
        warnings = [*pricing.warnings, *_not_measured(pricing, found)]
    else:
        attempts = _closed_loop(solver, measure, budget, budget_us, progress)
        taken = _best(attempts, solver, budget, pricing.original_us, stays)
        found = attempts[taken].allocation
        warnings = [*pricing.warnings, *_not_measured(pricing, found)]
        warnings += [f"Closed loop, round {taken + 1}: {warning}" for warning in attempts[taken].result.warnings]
    after = pricing.cost.by_layer(found.widths)
    plan = LatencyPlan(
        how=pricing.how,
        source=pricing.source,
        budget_us=budget_us,
        original_us=pricing.original_us,
        predicted_us=found.cost,
        rounds=tuple(attempt.record(taken=place == taken) for place, attempt in enumerate(attempts)),
        by_layer={layer: (before[layer], after[layer]) for layer in before},
        staircases=dict(pricing.staircases),
        errors=pricing.errors,
        gap=found.gap,
        warnings=tuple(warnings),
    )
    return Decision(solver.method, found.widths, plan, loss=solver.loss(found.widths) if solver.loss else None)


def _not_measured(pricing: Pricing, found: Allocation) -> list[str]:
    layers = pricing.estimated(found.widths)
    if not layers:
        return []
    return [f"No measurement at their widths: the predicted times of {len(layers)} layer(s) are estimates."]


def _estimated(solver: Solver, budget: Budget, budget_us: float, original_us: float, stays: str) -> Allocation:
    try:
        return solver.solve(budget_us)
    except BudgetError:
        us = solver.fastest.cost
        raise _cannot(budget, us, us / original_us, "estimate", stays) from None


@dataclass(frozen=True)
class _Attempt:
    """One round of the loop; ``used`` is the measured share of the budget."""

    allocation: Allocation
    result: CandidateLatency
    used: float

    def record(self, *, taken: bool) -> Round:
        return Round(
            predicted_us=self.allocation.cost,
            measured_us=self.result.candidate_us,
            original_us=self.result.original_us,
            speedup=self.result.speedup,
            widths=dict(self.allocation.widths),
            taken=taken,
        )


def _closed_loop(
    solver: Solver, measure: Measure, budget: Budget, budget_us: float, progress: Progress
) -> list[_Attempt]:
    """Allocate and measure until the budget is nearly used up, or the next network was measured before."""
    attempts: list[_Attempt] = []
    allowed_us = budget_us
    with progress.task("Meeting the budget", ROUNDS) as task:
        while len(attempts) < ROUNDS:
            allocation = _next(solver, allowed_us, attempts)
            if allocation is None:
                break
            result = measure(allocation.widths)
            attempt = _Attempt(allocation, result, result.candidate_us / budget.limit(result.original_us))
            attempts.append(attempt)
            progress.note(
                f"round {len(attempts)}: predicted {allocation.cost:.0f} us, measured {result.candidate_us:.0f} us, "
                f"{result.speedup.ratio:.3f} of the original; {attempt.used:.1%} of the budget"
            )
            task.advance()
            if NEARLY_ALL <= attempt.used <= 1:
                break
            allowed_us = _aim(attempts)
    return attempts


def _aim(attempts: list[_Attempt]) -> float:
    """The predicted latency that the next network may have.

    With networks on both sides of the budget it is interpolated between the nearest two by a power law. Before that,
    the model is assumed to be wrong by the same factor as last time.
    """
    within = max((attempt for attempt in attempts if attempt.used <= 1), key=lambda attempt: attempt.used, default=None)
    above = min((attempt for attempt in attempts if attempt.used > 1), key=lambda attempt: attempt.used, default=None)
    exceeded = sum(attempt.used > 1 for attempt in attempts)
    wanted = 1 - MARGIN * 2.0 ** max(0, exceeded - 1)
    if within is None or above is None or within.allocation.cost >= above.allocation.cost:
        return wanted * attempts[-1].allocation.cost / attempts[-1].used
    share = max(0.0, math.log(wanted / within.used)) / math.log(above.used / within.used)
    return within.allocation.cost * math.pow(above.allocation.cost / within.allocation.cost, share)


def _next(solver: Solver, allowed_us: float, attempts: list[_Attempt]) -> Allocation | None:
    """The network to measure next; None if there is no new one."""
    try:
        found = solver.solve(allowed_us)
    except BudgetError:
        if any(attempt.used <= 1 for attempt in attempts):
            return None
        found = solver.fastest  # by the model it is too slow, but the model may be wrong
    return None if found.widths in [attempt.allocation.widths for attempt in attempts] else found


def _best(attempts: list[_Attempt], solver: Solver, budget: Budget, profiled_us: float, stays: str) -> int:
    """The one of ``attempts`` that uses most of the budget without exceeding it.

    ``profiled_us`` is the original's latency in the profile. ``stays`` says what cannot be pruned, for the error.

    Raises:
        MissedError: none.
    """
    within = [place for place, attempt in enumerate(attempts) if attempt.used <= 1]
    if within:
        return max(within, key=lambda place: attempts[place].used)
    result = min(attempts, key=lambda attempt: attempt.used).result
    off = profiled_us / result.original_us - 1
    if abs(off) > STALE:
        raise MissedError(
            f"The budget {budget} was not met: the fastest network that was tried takes {result.candidate_us:.0f} us, "
            f"{result.speedup.ratio:.3f} of the original. The latency profile may be wrong: it has the original at "
            f"{profiled_us:.0f} us, {off:+.0%} from the {result.original_us:.0f} us measured now.",
            "Measure it again on a quiet machine: catro-deploy profile --force",
        )
    if solver.fastest.widths in [attempt.allocation.widths for attempt in attempts]:
        raise _cannot(budget, result.candidate_us, result.speedup.ratio, "measured", stays)
    raise MissedError(
        f"The budget {budget} was not met in {len(attempts)} rounds: the fastest of their networks took "
        f"{result.candidate_us:.0f} us, {result.speedup.ratio:.3f} of the original (measured).",
        f"{_suggestion(budget, result.candidate_us, result.speedup.ratio)}, or run it again on a quieter machine.",
    )


def _cannot(budget: Budget, us: float, share: float, how: Literal["measured", "estimate"], stays: str) -> MissedError:
    return MissedError(
        f"The budget {budget} cannot be met: the fastest network of these settings takes {us:.0f} us, {share:.3f} of "
        f"the original ({how}).{stays}",
        f"{_suggestion(budget, us, share)}, fewer channels per group (--d-min), or that residual branches are removed "
        "(--depth auto).",
    )


def _suggestion(budget: Budget, us: float, share: float) -> str:
    """Advice to raise the budget: to the smallest round one that this network meets, in the unit of ``budget``."""
    if budget.unit == "us":
        return f"Allow {Budget(math.ceil(us), 'us')} or more (--budget)"
    if share < 1:
        return f"Allow {Budget(math.ceil(share * 100) / 100, 'x')} or more (--budget)"
    return "Allow more images at a time (--batch)"  # no allowed share is enough
