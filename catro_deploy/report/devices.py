"""One network on several targets: a column for each."""

from catro_deploy.records import Bench, Plan, Verdict, Verify
from catro_deploy.records.budgets import DeviceFigures
from catro_deploy.records.report import Report
from catro_deploy.report.budgets import budget_figures, share_words
from catro_deploy.report.tables import Table
from catro_deploy.report.verdict import OUTCOMES
from catro_deploy.report.wording import duration, percent

__all__ = ["device_figures", "devices_table"]


def device_figures(plan: Plan, bench: Bench | None, verify: Verify | None) -> tuple[DeviceFigures, ...]:
    """The measurements on each of several targets; empty if there is only one."""
    if bench is None or not bench.also:
        return ()
    budgets = budget_figures(plan, bench, None)
    found = []
    for name, one in {plan.target: bench, **bench.also}.items():
        verdict: Verdict | None = verify if name == plan.target else verify.also.get(name) if verify else None
        found.append(
            DeviceFigures(
                name=name,
                runtime=str(one.environment.get("runtime", "")),
                precision=str(one.environment.get("precision", "")),
                original_us=one.original.p50_us,
                pruned_us=one.pruned.p50_us,
                speedup=one.speedup,
                accuracy=verdict.pruned.runtime if verdict else None,
                original_accuracy=verdict.original.runtime if verdict else None,
                agreement=verdict.agreement_with_original.share if verdict else None,
                budgets=tuple(budget for budget in budgets if budget.target == name),
                reached=str(one.environment.get("reached", "")),
            )
        )
    return tuple(found)


def devices_table(report: Report) -> Table | None:
    """A column for each of several targets; None if there is only one."""
    devices = report.devices
    if not devices:
        return None
    rows = [
        ("Measured on", *(one.reached for one in devices)),
        ("Runtime", *(one.runtime for one in devices)),
        ("Precision", *(one.precision for one in devices)),
        ("Original, median", *(duration(one.original_us) for one in devices)),
        ("Pruned, median", *(duration(one.pruned_us) for one in devices)),
        ("Of the original", *(f"{one.speedup.ratio:.3f}x" for one in devices)),
        ("95% CI", *(" to ".join(f"{bound:.3f}x" for bound in one.speedup.ratio_ci95) for one in devices)),
        *_budget_rows(report),
        *_accuracy_rows(report),
    ]
    head = ("", *(one.name for one in devices))
    return Table(head, tuple(rows), frozenset(range(1, len(head))))


def _budget_rows(report: Report) -> list[tuple[str, ...]]:
    """A row for each budget: its used share, and whether it was met."""
    names = dict.fromkeys((budget.budget, budget.sustained) for one in report.devices for budget in one.budgets)
    rows = []
    for name, sustained in names:
        cells = []
        for one in report.devices:
            mine = next((b for b in one.budgets if (b.budget, b.sustained) == (name, sustained)), None)
            cells.append(f"{share_words(mine)} used, {OUTCOMES[mine.outcome]}" if mine else "")
        rows.append((f"Budget {name}{' sustained' if sustained else ''}", *cells))
    return rows


def _accuracy_rows(report: Report) -> list[tuple[str, ...]]:
    devices = report.devices
    if any(one.accuracy is None for one in devices):
        known = all(one.agreement is not None for one in devices)
        return [("Same prediction as the original", *(percent(one.agreement) for one in devices))] if known else []
    return [
        ("Accuracy, original", *(percent(one.original_accuracy) for one in devices)),
        ("Accuracy, pruned", *(percent(one.accuracy) for one in devices)),
    ]
