"""What a plan and a bench say of the budget and of latency, as plain records for every form of the report."""

from collections.abc import Mapping
from typing import Any

from catro_deploy.records import Budget, LatencyPlan, Plan, Round

__all__ = ["budget_used", "latency_record"]

# Two measurements of one network differ by so much more than their intervals say: caches, clocks, where memory lies.
RUN_TO_RUN = 0.02


def budget_used(plan: Plan, bench: Mapping[str, Any] | None) -> dict[str, Any]:
    """How much of the budget the pruned network uses, in the budget's own unit.

    Returns:
        ``unit`` and ``asked``; ``predicted`` when the widths were chosen, None for ``flops``; ``used`` (None if nobody
        measured it) with its 95% interval ``ci95`` if it was measured (that of the ratio to the original, for ``us``
        times the original's latency); ``how``: counted, measured or not measured;
        ``outcome``: met, missed, unsure (above the budget, but by no more than measurements differ) or not measured.
        Shares of the original for ``flops`` and ``x``, microseconds for ``us``.
    """
    budget = Budget.parse(plan.budget)
    used: float | None = None
    predicted: float | None = None
    interval: list[float] | None = None
    if budget.unit == "flops":
        used = plan.pruned_macs / plan.original_macs
    elif bench is not None:
        low, high = bench["speedup"]["ci95"]
        scale = bench["original"]["p50_us"] if budget.unit == "us" else 1.0
        used = bench["pruned"]["p50_us"] if budget.unit == "us" else 1 / bench["speedup"]["median"]
        interval = [scale / high, scale / low]
    if plan.latency is not None:
        predicted = _in_unit(budget, plan.latency.predicted_us, plan.latency.original_us)
    how = "not measured" if used is None else "counted" if budget.unit == "flops" else "measured"
    return {
        "unit": budget.unit,
        "asked": budget.amount,
        "predicted": predicted,
        "used": used,
        "ci95": interval,
        "how": how,
        "outcome": _outcome(budget.amount, used, interval),
    }


def _in_unit(budget: Budget, us: float, original_us: float) -> float:
    return us if budget.unit == "us" else us / original_us


def _outcome(asked: float, used: float | None, interval: list[float] | None) -> str:
    if used is None:
        return "not measured"
    if used <= asked:
        return "met"
    return "unsure" if interval and interval[0] <= asked * (1 + RUN_TO_RUN) else "missed"


def latency_record(plan: Plan) -> dict[str, Any] | None:
    """How the widths follow from latency; None if the budget counts multiply-accumulates.

    Times are microseconds (``_us``). ``predicted``, ``measured`` and ``ci95`` of a round are in the budget's unit;
    ``taken`` marks the round whose network this is. Staircases come by the time at full width, the longest first;
    a group that the plan no longer has is gone: its ``chosen`` width is 0.
    """
    latency = plan.latency
    if latency is None:
        return None
    errors = latency.errors
    return {
        "how": latency.how,
        "source": latency.source,
        "budget_us": latency.budget_us,
        "original_us": latency.original_us,
        "predicted_us": latency.predicted_us,
        "gap": latency.gap,
        "rounds": [_round(one, plan, latency) for one in latency.rounds],
        "staircases": _staircases(plan, latency),
        "layers": [
            {"name": name, "before_us": before, "after_us": after} for name, (before, after) in latency.by_layer.items()
        ],
        "errors": None
        if errors is None
        else {
            "networks": errors.networks,
            "within_5": errors.within_5,
            "within_10": errors.within_10,
            "rmspe": errors.rmspe,
            "spearman": errors.spearman,
        },
    }


def _round(one: Round, plan: Plan, latency: LatencyPlan) -> dict[str, Any]:
    budget = Budget.parse(plan.budget)
    scale = one.original_us if budget.unit == "us" else 1.0
    kept = {group.name: len(group.kept) for group in plan.groups}
    return {
        "predicted": _in_unit(budget, one.predicted_us, latency.original_us),
        "measured": one.measured_us if budget.unit == "us" else one.ratio,
        "ci95": [bound * scale for bound in one.ratio_ci95],
        "predicted_us": one.predicted_us,
        "measured_us": one.measured_us,
        "original_us": one.original_us,
        "ratio": one.ratio,
        "ratio_ci95": list(one.ratio_ci95),
        "taken": all(kept.get(name, 0) == width for name, width in one.widths.items()),
    }


def _staircases(plan: Plan, latency: LatencyPlan) -> list[dict[str, Any]]:
    kept = {group.name: len(group.kept) for group in plan.groups}
    found = [
        {
            "group": name,
            "width": stairs.swept[-1][0],
            "chosen": kept.get(name, 0),
            "period": stairs.period,
            "candidates": list(stairs.candidates),
            "swept": [[width, us] for width, us in stairs.swept],
        }
        for name, stairs in latency.staircases.items()
        if stairs.swept
    ]
    return sorted(found, key=lambda one: -one["swept"][-1][1])
