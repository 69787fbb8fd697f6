"""Budget and latency figures, from the plan and the bench."""

from typing import Literal

from catro_deploy.budget import MEDIAN
from catro_deploy.records import Bench, Budget, LatencyPlan, Plan, Round
from catro_deploy.records.budgets import BudgetUsed
from catro_deploy.records.figures import LatencyFigures, LayerTime, RoundFigures, StairFigures
from catro_deploy.report.budgets import RUN_TO_RUN, budget_figures

__all__ = ["budget_used", "latency_figures"]

Outcome = Literal["met", "missed", "unsure", "not measured"]


def budget_used(plan: Plan, bench: Bench | None) -> BudgetUsed:
    """How much of the budget the pruned network uses, in the budget's unit."""
    budget = Budget.parse(plan.budget)
    if budget.percentile != MEDIAN:
        return _percentile_used(budget, plan, bench)
    used: float | None = None
    predicted: float | None = None
    interval: tuple[float, float] | None = None
    if budget.unit == "flops":
        used = plan.pruned_macs / plan.original_macs
    elif bench is not None:
        low, high = bench.speedup.ratio_ci95
        scale = bench.original.p50_us if budget.unit == "us" else 1.0
        used = bench.pruned.p50_us if budget.unit == "us" else bench.speedup.ratio
        interval = (scale * low, scale * high)
    if plan.latency is not None:
        predicted = _in_unit(budget, plan.latency.predicted_us, plan.latency.original_us)
    return BudgetUsed(
        unit=budget.unit,
        asked=budget.amount,
        predicted=predicted,
        used=used,
        ci95=interval,
        how="not measured" if used is None else "counted" if budget.unit == "flops" else "measured",
        outcome=_outcome(budget.amount, used, interval),
    )


def _percentile_used(budget: Budget, plan: Plan, bench: Bench | None) -> BudgetUsed:
    """How much is used of a budget for a percentile other than the median."""
    found = budget_figures(plan, bench, None)
    figures = next(one for one in found if one.budget == plan.budget and not one.sustained)
    scale = 1.0 if budget.unit == "us" or not figures.original else figures.original
    return BudgetUsed(
        unit=budget.unit,
        asked=budget.amount,
        predicted=None if figures.predicted is None else figures.predicted / scale,
        used=None if figures.measured is None else figures.measured / scale,
        ci95=None,
        how="not measured" if figures.measured is None else "measured",
        outcome=figures.outcome,
    )


def _in_unit(budget: Budget, us: float, original_us: float) -> float:
    return us if budget.unit == "us" else us / original_us


def _outcome(asked: float, used: float | None, interval: tuple[float, float] | None) -> Outcome:
    if used is None:
        return "not measured"
    if used <= asked:
        return "met"
    return "unsure" if interval and interval[0] <= asked * (1 + RUN_TO_RUN) else "missed"


def latency_figures(plan: Plan) -> LatencyFigures | None:
    """How latency determined the widths; None if the budget counts multiply-accumulates."""
    latency = plan.latency
    if latency is None:
        return None
    return LatencyFigures(
        how=latency.how,
        source=latency.source,
        budget_us=latency.budget_us,
        original_us=latency.original_us,
        predicted_us=latency.predicted_us,
        gap=latency.gap,
        rounds=tuple(_round(one, plan, latency) for one in latency.rounds),
        staircases=_staircases(plan, latency),
        layers=tuple(LayerTime(name, before, after) for name, (before, after) in latency.by_layer.items()),
        errors=latency.errors,
    )


def _round(one: Round, plan: Plan, latency: LatencyPlan) -> RoundFigures:
    budget = Budget.parse(plan.budget)
    scale = one.original_us if budget.unit == "us" else 1.0
    low, high = one.speedup.ratio_ci95
    return RoundFigures(
        predicted=_in_unit(budget, one.predicted_us, latency.original_us),
        measured=one.measured_us if budget.unit == "us" else one.speedup.ratio,
        ci95=(low * scale, high * scale),
        predicted_us=one.predicted_us,
        measured_us=one.measured_us,
        original_us=one.original_us,
        speedup=one.speedup,
        taken=one.taken,
    )


def _staircases(plan: Plan, latency: LatencyPlan) -> tuple[StairFigures, ...]:
    kept = {group.name: len(group.kept) for group in plan.groups}
    found = [
        StairFigures(
            group=name,
            width=stairs.swept[-1][0],
            chosen=kept.get(name, 0),
            period=stairs.period,
            candidates=stairs.candidates,
            swept=stairs.swept,
        )
        for name, stairs in latency.staircases.items()
        if stairs.swept
    ]
    return tuple(sorted(found, key=lambda one: -one.swept[-1][1]))
