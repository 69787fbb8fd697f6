"""All budgets of a run: requested, predicted and measured amounts, which one binds, and which were missed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from catro_deploy.agent.measure import percentile
from catro_deploy.budget import MEDIAN, Budget, Use
from catro_deploy.records import Bench, BudgetPlan, Plan, Samples, Shipped, Soak
from catro_deploy.records.budgets import BudgetFigures
from catro_deploy.report.shipping import kilobytes
from catro_deploy.report.wording import count, duration, percent

__all__ = [
    "RUN_TO_RUN",
    "amount_words",
    "asked_words",
    "budget_figures",
    "missed_list",
    "missed_words",
    "other_budgets",
    "planned_figures",
    "share_words",
]

# By how much two measurements of one network differ beyond their intervals: caches, clocks, memory placement.
RUN_TO_RUN = 0.02


def budget_figures(plan: Plan, bench: Bench | None, shipped: Shipped | None) -> tuple[BudgetFigures, ...]:
    """Every budget of ``plan``, with measurements as far as available, in the order of the request."""
    found: list[BudgetFigures] = []
    for one in plan.budgets:
        budget = _parsed(one)
        there = bench.on(one.target, plan.target) if bench else None
        found.append(_measured(one, budget, there, shipped))
        if there and there.soak and budget.use == "latency" and budget.percentile == MEDIAN:
            found.append(_sustained(found[-1], there.soak))
    most = max((one.share for one in found if one.share is not None), default=None)
    binding = next((place for place, one in enumerate(found) if one.share is not None and one.share == most), None)
    return tuple(replace(one, binding=place == binding) for place, one in enumerate(found))


def planned_figures(plan: Plan) -> tuple[BudgetFigures, ...]:
    """Every budget of ``plan`` after the choice of widths: as measured in the closed loop, or as predicted."""
    return tuple(
        replace(_figures(one, _parsed(one), one.most, one.original, one.measured, 1.0), binding=one.binding)
        for one in plan.budgets
    )


def missed_words(figures: Sequence[BudgetFigures], uses: Sequence[Use]) -> str:
    """The missed budgets of these ``uses`` in words, the one missed by most first; empty if none is missed."""
    missed = _missed([one for one in figures if one.use in uses])
    if not missed:
        return ""
    binds = "" if len(figures) == 1 else f" {asked_words(missed[0])} binds."
    return f"Not met, measured: {missed_list(missed)}.{binds}"


def other_budgets(budget: str, figures: Sequence[BudgetFigures]) -> list[BudgetFigures]:
    """All ``figures`` but those of ``budget`` on the first target, by which the widths were chosen."""
    place = next((at for at, one in enumerate(figures) if one.budget == budget and not one.sustained), None)
    return [one for at, one in enumerate(figures) if at != place]


def missed_list(figures: Sequence[BudgetFigures]) -> str:
    """The missed budgets with the used and the allowed amount, the one missed by most first."""
    return "; ".join(
        f"{asked_words(one)}: {amount_words(one.measured, one.use)} of {amount_words(one.most, one.use)}"
        for one in _missed(figures)
    )


def _missed(figures: Sequence[BudgetFigures]) -> list[BudgetFigures]:
    return sorted((one for one in figures if one.outcome == "missed"), key=lambda one: -(one.share or 0.0))


def asked_words(one: BudgetFigures) -> str:
    """A budget, the quantity that it limits, and the target: ``900us@p99 of latency on arm-cpu``."""
    of = {"latency": "of latency", "MACs": "", "size": "of size", "memory": "of memory", "energy": "of energy"}[one.use]
    where = f"on {one.target}" if one.target else ""
    return " ".join(filter(None, [one.budget, of, "sustained" if one.sustained else "", where]))


def amount_words(amount: float | None, use: Use) -> str:
    """An amount of the quantity ``use``, with its unit."""
    if amount is None:
        return "not known"
    match use:
        case "latency":
            return duration(amount)
        case "energy":
            return f"{amount:.3g} mJ"
        case "MACs":
            return count(amount)
        case _:
            return kilobytes(round(amount))


def share_words(one: BudgetFigures) -> str:
    """The used share of a budget, in percent."""
    return "not known" if one.share is None else percent(one.share)


def _parsed(one: BudgetPlan) -> Budget:
    of: dict[Use, str] = {"MACs": "latency"}
    return Budget.parse(one.budget, of.get(one.use, one.use))  # type: ignore[arg-type]


def _measured(one: BudgetPlan, budget: Budget, bench: Bench | None, shipped: Shipped | None) -> BudgetFigures:
    """``one`` with the final measurements on the target, or with the amounts of the shipped file."""
    original, measured, low = one.original, None, 1.0
    if budget.is_timed and bench is not None:
        used = _timed(budget, bench)
        if used is not None:
            measured, original = used
            # The lower bound of the interval of the ratio, as a share of the measured ratio.
            low = bench.speedup.ratio_ci95[0] / bench.speedup.ratio if budget.percentile == MEDIAN else 1.0
    elif budget.use == "MACs":
        measured = one.measured
    elif shipped is not None:
        measured = float(shipped.largest_bytes) if budget.use == "size" else shipped.memory_bytes
        whole = shipped.original_bytes if budget.use == "size" else shipped.original_memory_bytes
        original = whole or original
    most = budget.limit(original or 0.0) if original or not budget.is_share else one.most
    return _figures(one, budget, most, original, measured, low if budget.is_timed else None)


def _figures(
    one: BudgetPlan,
    budget: Budget,
    most: float | None,
    original: float | None,
    measured: float | None,
    low: float | None,
) -> BudgetFigures:
    used = one.predicted if measured is None else measured
    share = None if used is None or not most else used / most
    figures = BudgetFigures(
        budget=one.budget,
        use=one.use,
        percentile=budget.percentile,
        target=one.target,
        sustained=False,
        most=most,
        original=original,
        predicted=one.predicted,
        measured=measured,
        share=share,
        outcome="not measured",
    )
    return figures if measured is None or share is None else replace(figures, outcome=_outcome(share, low))


def _sustained(cold: BudgetFigures, soak: Soak) -> BudgetFigures:
    """The same budget at the end of the soak: the allowed amount is the same as before."""
    share = soak.sustained_us / cold.most if cold.most else None
    return replace(
        cold,
        sustained=True,
        predicted=None,
        measured=soak.sustained_us,
        share=share,
        outcome="not measured" if share is None else _outcome(share, 1.0),
    )


def _outcome(share: float, low: float | None) -> Literal["met", "missed", "unsure"]:
    """``low`` is the lower bound of the true amount, as a share of the measured one; None if it was counted."""
    if share <= 1:
        return "met"
    return "unsure" if low is not None and share * low <= 1 + RUN_TO_RUN else "missed"


def _timed(budget: Budget, bench: Bench) -> tuple[float, float] | None:
    """The amounts that the pruned network and the original use; None if they were not measured."""
    if budget.use == "energy":
        energy = bench.energy
        return (energy.pruned.mj_per_inference, energy.original.mj_per_inference) if energy else None
    return _at(bench.pruned, budget.percentile), _at(bench.original, budget.percentile)


def _at(times: Samples, percent_: int) -> float:
    return times.p50_us if percent_ == MEDIAN else percentile(sorted(times.samples_us), percent_)
