"""Errors for missed budgets: which one was missed, by how much, why, and what to allow instead."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from catro_deploy.budget import Budget
from catro_deploy.errors import MissedError
from catro_deploy.latency.pricing import Pricing
from catro_deploy.pruning.closed_loop import Attempt, Axis, certain
from catro_deploy.pruning.solvers import Problem, Solver
from catro_deploy.pruning.values import full_widths
from catro_deploy.units import counted

__all__ = ["allow", "best_of", "cannot", "require_attainable", "what_stays"]

# If the original's latencies in profile and loop differ by more, the profile does not show which network is fastest.
STALE = 0.2
# Most reasons that are named for a missed budget, and the smallest share of the cost for a reason to be named.
MOST_REASONS, LEAST_SHARE = 3, 0.01
# Sizes are predicted to within this factor.
UNSURE = 1.1
FLAGS = {"size": "--max-size", "memory": "--max-memory", "energy": "--max-energy"}


def what_stays(problem: Problem, costs: Mapping[str, float], whole: float, other: float = 0.0) -> str:
    """The channels that must stay whose layers cost most, with the reasons; empty if they cost little.

    ``costs`` has the cost of each layer, ``other`` is the cost outside layers, ``whole`` that of the network.
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


def require_attainable(axes: Sequence[Axis], smallest: Mapping[str, int], problem: Problem) -> None:
    """Check that the ``smallest`` network is within each limit of ``axes``, which are counted, not timed.

    Raises:
        MissedError: it is not; the error names the budget and the network's use of it.
    """
    for axis in axes:
        least = axis.use.predict(smallest)
        if least <= axis.most * (UNSURE if axis.share else 1.0):
            continue
        budget = _strictest(problem, axis.name)
        raise MissedError(
            f"The {_called(budget)} cannot be met: the smallest network with these settings needs "
            f"{_amount(least, budget)} (predicted), and {_amount(axis.most, budget)} are allowed.",
            allow(f"Allow more ({FLAGS.get(budget.use, '--budget')})", problem),
        )


def best_of(
    attempts: Sequence[Attempt],
    axes: Sequence[Axis],
    problem: Problem,
    first: Pricing | None = None,
    solver: Solver | None = None,
) -> int:
    """The index of the attempt that uses most of a budget and misses none, if possible one with a certain measurement.

    ``first`` has the prices on the first device, for which ``solver`` found the networks.

    Raises:
        MissedError: all attempts miss a budget, or there are none.
    """
    within = [place for place, attempt in enumerate(attempts) if attempt.most_used <= 1]
    if within:
        reliable = certain(attempts)
        preferred = [place for place in within if attempts[place] in reliable]
        return max(preferred or within, key=lambda place: attempts[place].most_used)
    if not attempts:
        names = ", ".join(axis.name for axis in axes)
        raise MissedError(
            f"The budgets {_all(problem)} cannot be met together: by the predicted {names} no network with these "
            "settings meets all of them.",
            allow("Allow more of one of them", problem),
        )
    nearest = min(attempts, key=lambda attempt: attempt.most_used)
    if first is not None and solver is not None and len(axes) == 1 and len(problem.settings.budgets) == 1:
        budget = problem.settings.given_budget
        if budget.percentile == 50 and budget.use == "latency" and nearest.measured.devices[0].sustained_us is None:
            raise _too_slow(attempts, nearest, problem, first, solver)
    axis = axes[nearest.binding]
    several = len(problem.settings.budgets) > 1
    missed = f"budgets {_all(problem)} were not met" if several else f"budget {_all(problem)} was not met"
    binds, of_it = (f": {axis.name} binds", " of it") if len(axes) > 1 else ("", "")
    raise MissedError(
        f"The {missed} in {_rounds(attempts)}{binds}. The nearest network uses {nearest.most_used:.1%} of what is "
        f"allowed{of_it} (measured)"
        f"{_others(nearest, axes)}.{_delays(nearest) if nearest.is_delayed else ''}",
        f"Measure on a quiet machine, or allow more of it ({_flag(axis.name, problem)})."
        if nearest.is_disturbed
        else allow(f"Allow more of it ({_flag(axis.name, problem)})", problem),
    )


def _delays(nearest: Attempt) -> str:
    """What keeps networks of any widths from meeting a percentile."""
    return (
        f" Delays alone use {max(nearest.delays):.1%}: at this percentile, smaller networks are interrupted for as "
        "long, for example by other processes."
    )


def _too_slow(
    attempts: Sequence[Attempt], nearest: Attempt, problem: Problem, first: Pricing, solver: Solver
) -> MissedError:
    """The error if the only budget limits median latency, and none of ``attempts`` was fast enough."""
    result, budget = nearest.measured.devices[0], problem.settings.given_budget
    suggestion = _suggestion(budget, result.candidate_us, result.speedup.ratio)
    off = first.original_us / result.original_us - 1
    if abs(off) > STALE:
        missed = (
            f"The budget {budget} was not met: the fastest network that was tried takes {result.candidate_us:.0f} us, "
            f"{result.speedup.ratio:.3f} of the original (measured). "
        )
        if first.how == "estimate":
            return MissedError(
                f"{missed}The estimate by which networks were chosen may be wrong: it puts the original at "
                f"{first.original_us:.0f} us, {off:+.0%} from the {result.original_us:.0f} us measured now.",
                f"{suggestion}, or check the figures in [gpu] of the target.",
            )
        return MissedError(
            f"{missed}The latency profile may be wrong: it puts the original at {first.original_us:.0f} us, {off:+.0%} "
            f"from the {result.original_us:.0f} us measured now.",
            "Measure it again on a quiet machine: catro-deploy profile --force",
        )
    if solver.fastest.widths in [attempt.allocation.widths for attempt in attempts]:
        return cannot(problem, result.candidate_us, result.speedup.ratio, "measured", first)
    return MissedError(
        f"The budget {budget} was not met in {_rounds(attempts)}: the fastest network that was tried took "
        f"{result.candidate_us:.0f} us, {result.speedup.ratio:.3f} of the original (measured).",
        f"{suggestion}, or run it again on a quieter machine.",
    )


def allow(more: str, problem: Problem) -> str:
    """A hint: ``more`` of a budget, or the settings that would allow smaller networks."""
    settings, ways = problem.settings, [more]
    if settings.d_min > 1:
        ways.append(f"fewer channels per group (--d-min, now {settings.d_min})")
    if not settings.prune_first:
        ways.append("pruning of the first convolution (--prune-first)")
    if settings.depth == "never":
        ways.append("the removal of residual branches (--depth auto)")
    *others, last = ways
    return f"{', '.join(others)}, or {last}." if others else f"{last}."


def cannot(
    problem: Problem, us: float, share: float, how: Literal["measured", "estimate"], first: Pricing
) -> MissedError:
    """The error for a budget that the fastest network, which takes ``us`` microseconds, does not meet."""
    budget = problem.settings.given_budget
    stays = what_stays(problem, first.cost.by_layer(full_widths(problem.scored)), first.original_us)
    return MissedError(
        f"The budget {budget} cannot be met: the fastest network with these settings takes {us:.0f} us, {share:.3f} of "
        f"the original ({how}).{stays}",
        allow(_suggestion(budget, us, share), problem),
    )


def _suggestion(budget: Budget, us: float, share: float) -> str:
    """What to allow: the smallest round budget that a network this fast meets, in the unit of ``budget``."""
    if budget.unit == "us":
        return f"Allow {Budget(math.ceil(us), 'us')} or more (--budget)"
    if share < 1:
        return f"Allow {Budget(math.ceil(share * 100) / 100, 'x')} or more (--budget)"
    return "Allow more images at a time (--batch)"  # no valid share is enough


def _rounds(attempts: Sequence[Attempt]) -> str:
    return counted(len(attempts), "round")


def _all(problem: Problem) -> str:
    return ", ".join(map(_called, problem.settings.budgets)).replace("budget ", "")


def _called(budget: Budget) -> str:
    """A budget in words: ``budget 0.5x``, or with what it limits: ``budget 300kB of size``."""
    return f"budget {budget}{f' of {budget.use}' if budget.use in FLAGS else ''}"


def _flag(name: str, problem: Problem) -> str:
    """The flags of the budgets that the axis ``name`` stands for: that of latency also counts energy."""
    energy = name.startswith("latency") and any(budget.use == "energy" for budget in problem.settings.budgets)
    return FLAGS.get(name, f"--budget, {FLAGS['energy']}" if energy else "--budget")


def _strictest(problem: Problem, use: str) -> Budget:
    return next(budget for budget in problem.settings.budgets if budget.use == use)


def _amount(amount: float, budget: Budget) -> str:
    if budget.use == "MACs":
        return f"{amount:,.0f} multiply-accumulates"
    return f"{amount / 1000:,.1f} kB"


def _others(nearest: Attempt, axes: Sequence[Axis]) -> str:
    """The shares of the other budgets that it uses."""
    rest = [
        f"{axis.name} {used:.1%}"
        for place, (axis, used) in enumerate(zip(axes, nearest.used, strict=True))
        if place != nearest.binding
    ]
    return f", and of the others: {', '.join(rest)}" if rest else ""
