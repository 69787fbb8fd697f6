"""Budgets and soaks on the terminal."""

from collections.abc import Sequence

from rich.table import Table

from catro_deploy.records import Soak
from catro_deploy.records.budgets import BudgetFigures
from catro_deploy.records.report import Report
from catro_deploy.report.budgets import amount_words, asked_words, share_words
from catro_deploy.report.devices import devices_table
from catro_deploy.report.verdict import OUTCOMES, budget_words
from catro_deploy.report.wording import change, duration

__all__ = ["budget_lines", "budget_rows", "device_rows", "soak_line"]


def budget_rows(figures: Sequence[BudgetFigures]) -> list[Table]:
    """Every budget, and which one binds; nothing if there is only one."""
    if len(figures) < 2:
        return []
    table = Table(box=None, pad_edge=False)
    for name in ("budget", "allowed", "predicted", "measured", "used", ""):
        table.add_column(name, justify="left" if name in ("budget", "") else "right")
    for one in figures:
        amounts = (amount_words(amount, one.use) for amount in (one.most, one.predicted, one.measured))
        outcome = "" if one.outcome == "not measured" else OUTCOMES[one.outcome]
        remark = ", ".join(filter(None, [outcome, "binds" if one.binding else ""]))
        table.add_row(asked_words(one), *amounts, share_words(one), remark)
    return [table]


def device_rows(report: Report) -> list[Table]:
    """A column for each of several targets; nothing if there is one."""
    found = devices_table(report)
    if found is None:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, name in enumerate(found.head):
        table.add_column(name, justify="right" if place else "left")
    for row in found.rows:
        table.add_row(*row)
    return [table]


def soak_line(soak: Soak, before_us: float) -> str:
    """The result of a soak."""
    return (
        f"after {soak.seconds:.0f} s back to back the pruned network takes {duration(soak.sustained_us)} (p99 "
        f"{duration(soak.sustained_p99_us)}), {change(before_us, soak.sustained_us)} from {duration(before_us)}"
    )


def budget_lines(report: Report) -> Sequence[str]:
    """The budget in its own unit, if that is latency and it was measured."""
    used = report.budget_used
    if used.unit == "flops" or used.used is None or used.ci95 is None:
        return []
    asked, found = budget_words(used, used.asked), budget_words(used, used.used)
    low, high = (budget_words(used, bound) for bound in used.ci95)
    before = "" if used.predicted is None else f", predicted {budget_words(used, used.predicted)}"
    return [f"budget {asked}{before}, measured {found} (95% CI {low} to {high}): {OUTCOMES[used.outcome]}"]
