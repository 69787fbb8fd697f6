"""Tables of how latency determined the widths: budget, rounds, staircases, time by layer, errors of the cost model."""

from collections.abc import Sequence

from catro_deploy.records.budgets import BudgetUsed
from catro_deploy.records.figures import Dropped, LatencyFigures
from catro_deploy.records.report import Report
from catro_deploy.report.budgets import amount_words, asked_words, share_words
from catro_deploy.report.tables import Table
from catro_deploy.report.verdict import OUTCOMES, budget_words, prediction_word
from catro_deploy.report.wording import change, count, duration, percent, three_digits
from catro_deploy.units import counted

__all__ = [
    "budget_table",
    "budgets_table",
    "depth_words",
    "error_table",
    "layer_table",
    "prediction_words",
    "rounds_table",
    "source_words",
    "stairs_table",
]


def budget_table(report: Report) -> Table:
    """The requested, predicted and measured latency in the budget's unit; multiply-accumulates for information."""
    used, latency = report.budget_used, report.latency_plan
    rows = [("Requested", budget_words(used, used.asked))]
    if latency:
        rows.append((prediction_word(latency).capitalize(), budget_words(used, used.predicted)))
    if used.used is not None:
        rows.append(("Measured", budget_words(used, used.used)))
    if used.ci95:
        rows.append(("95% CI of the measurement", _interval(used, used.ci95)))
    rows.append(("Outcome", OUTCOMES[used.outcome]))
    rows.append(("MACs used, for information", percent(report.macs_share.used)))
    head = "Latency, median" if used.unit == "us" else "Share of the original's latency"
    return Table(("", head), tuple(rows), frozenset({1}))


def budgets_table(report: Report) -> Table | None:
    """The allowed, predicted and measured amount of every budget, and which binds; None if there is only one."""
    if len(report.budgets) < 2:
        return None
    rows = tuple(
        (
            asked_words(one),
            *(amount_words(amount, one.use) for amount in (one.most, one.predicted, one.measured)),
            share_words(one),
            OUTCOMES[one.outcome] + (", binds" if one.binding else ""),
        )
        for one in report.budgets
    )
    return Table(("Budget", "Allowed", "Predicted", "Measured", "Used", "Outcome"), rows, frozenset({1, 2, 3, 4}))


def _interval(used: BudgetUsed, bounds: Sequence[float]) -> str:
    return " to ".join(budget_words(used, bound) for bound in bounds)


def prediction_words(report: Report) -> str:
    """Why the prediction exceeds a budget that is met; empty where it does not."""
    used, latency = report.budget_used, report.latency_plan
    if latency is None or used.predicted is None or used.outcome != "met" or used.predicted <= used.asked:
        return ""
    words = (
        f"The budget is met although the {_noun(latency)} is above it: that is the latency model's alone, and each "
        "round allows for the model's error in earlier rounds."
    )
    measured = report.original.latency_ms
    if used.unit != "x" or used.ci95 is None or measured is None:
        return words
    return (
        f"{words} It is a share of the original's {duration(latency.original_us)} in the plan; the measured shares "
        f"are of its latency in the same measurement, {duration(1000 * measured.p50)} in the last one."
    )


def _noun(latency: LatencyFigures) -> str:
    return "estimate" if latency.how == "estimate" else "prediction"


def rounds_table(latency: LatencyFigures, used: BudgetUsed) -> Table:
    """Rounds of the closed loop in the budget's unit, and which one was taken."""
    rows = tuple(
        (
            f"{number}{', taken' if one.taken else ''}",
            budget_words(used, one.predicted),
            budget_words(used, one.measured),
            _interval(used, one.ci95),
            f"{one.measured / used.asked:.1%}",
            f"{duration(one.measured_us)} of {duration(one.original_us)}",
        )
        for number, one in enumerate(latency.rounds, 1)
    )
    head = ("Round", "Predicted", "Measured", "95% CI", "Of the budget", "Times, measured")
    return Table(head, rows, frozenset({1, 2, 3, 4, 5}))


def stairs_table(latency: LatencyFigures) -> Table:
    """Efficient widths of every group, and the chosen one."""
    rows = tuple(
        (
            one.group,
            count(one.width),
            count(one.chosen) if one.chosen else "removed",
            str(one.period) if one.period > 1 else "none",
            ", ".join(map(str, one.candidates)),
        )
        for one in latency.staircases
    )
    return Table(("Group", "Width", "Chosen", "Period", "Candidates"), rows, frozenset({1, 2, 3}))


def layer_table(latency: LatencyFigures) -> Table:
    """Time of every layer before and after, in the order of execution."""
    rows = tuple(
        (
            one.name,
            three_digits(one.before_us),
            three_digits(one.after_us) if one.after_us else "removed",
            change(one.before_us, one.after_us) if one.before_us else "",
        )
        for one in latency.layers
    )
    word = prediction_word(latency)
    return Table(("Layer", f"Before, µs ({word})", f"After, µs ({word})", "Change"), rows, frozenset({1, 2, 3}))


def error_table(latency: LatencyFigures) -> Table | None:
    """Errors of the cost model on held-out networks; None if there are none."""
    errors = latency.errors
    if errors is None:
        return None
    row = (
        "Networks held out from the fit",
        count(errors.networks),
        f"{errors.within_5:.1%}",
        f"{errors.within_10:.1%}",
        f"{errors.rmspe:.1%}",
        f"{errors.spearman:.3f}",
    )
    head = ("Prediction against measurement", "Networks", "Within ±5%", "Within ±10%", "RMSPE", "Spearman")
    return Table(head, (row,), frozenset(range(1, 6)))


def source_words(latency: LatencyFigures) -> str:
    """The source of the plan's times, and the optimality gap of the allocation."""
    source = latency.source[:1].upper() + latency.source[1:]
    gap = latency.gap
    proven = ""
    if gap is not None:
        optimum = f"within {max(gap, 1e-4):.2%} of the best" if gap else "the best"
        proven = f" On these times the allocation is proven to be {optimum}."
    nature = " These times are estimated, not measured." if latency.how == "estimate" else ""
    untested = " No networks were held out to evaluate it." if latency.errors is None else ""
    return f"{source}.{nature}{untested}{proven}"


def depth_words(dropped: Dropped) -> str:
    """The removed residual branches and layers; empty if there are none."""
    branches, layers = dropped.branches, dropped.layers
    if not branches:
        return ""
    subject = counted(len(branches), "residual branch is", "residual branches are")
    return f"{subject} removed, named by the last layer: {', '.join(branches)}. Removed layers: {', '.join(layers)}."
