"""Parts of report.json: what became of budgets, on each target."""

from dataclasses import dataclass
from typing import Literal

from catro_deploy.budget import Use
from catro_deploy.records.bench import Speedup

__all__ = ["BudgetFigures", "BudgetUsed", "DeviceFigures"]

Interval = tuple[float, float]


@dataclass(frozen=True)
class BudgetUsed:
    """How much of the budget the pruned network uses, in the budget's unit.

    Shares of the original for ``flops`` and ``x``, microseconds for ``us``.

    Attributes:
        predicted: when the widths were chosen; None for ``flops``.
        used: None if it was not measured.
        ci95: its 95% interval if it was measured: that of the ratio to the original, for ``us`` times the original's
            latency.
        outcome: ``unsure`` is above the budget, but within the noise of measurements.
    """

    unit: Literal["flops", "x", "us", "bytes", "mJ"]
    asked: float
    predicted: float | None
    used: float | None
    ci95: Interval | None
    how: Literal["counted", "measured", "not measured"]
    outcome: Literal["met", "missed", "unsure", "not measured"]


@dataclass(frozen=True)
class BudgetFigures:
    """One budget on one target, and what the pruned network uses of it.

    Amounts are microseconds, multiply-accumulates, bytes or millijoules, as ``use`` has them.

    Attributes:
        percentile: of latency.
        target: which of several; empty if there is one.
        sustained: at the end of a soak, the original as it was before.
        most: what is allowed; None where it is a share of what is not known.
        predicted: by the cost model when widths were chosen.
        measured: on the target, or of the file that is shipped; None if it was not.
        share: what is used of the budget, as far as it is known.
        binding: of no other budget is so large a share used.
    """

    budget: str
    use: Use
    percentile: int
    target: str
    sustained: bool
    most: float | None
    original: float | None
    predicted: float | None
    measured: float | None
    share: float | None
    outcome: Literal["met", "missed", "unsure", "not measured"]
    binding: bool = False


@dataclass(frozen=True)
class DeviceFigures:
    """What the network does on one of several targets; accuracies are fractions, None where they were not measured."""

    name: str
    runtime: str
    precision: str
    original_us: float
    pruned_us: float
    speedup: Speedup
    accuracy: float | None
    original_accuracy: float | None
    agreement: float | None
    budgets: tuple[BudgetFigures, ...]
