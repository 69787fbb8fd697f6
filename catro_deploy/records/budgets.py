"""Parts of report.json: the outcome of each budget, on each target."""

from dataclasses import dataclass
from typing import Literal

from catro_deploy.budget import Use
from catro_deploy.records.bench import Speedup

__all__ = ["BudgetFigures", "BudgetUsed", "DeviceFigures"]

Interval = tuple[float, float]


@dataclass(frozen=True)
class BudgetUsed:
    """How much of the budget the pruned network uses, in the budget's unit.

    Amounts are shares of the original for ``flops`` and ``x``, microseconds for ``us``.

    Attributes:
        predicted: the prediction when the widths were chosen; None for ``flops``.
        used: the measured or counted amount; None if it was not measured.
        ci95: the 95% interval of ``used`` if it was measured: that of the ratio to the original, for ``us`` multiplied
            by the original's latency.
        outcome: ``unsure`` means above the budget, but within the measurement noise.
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

    Amounts are microseconds, multiply-accumulates, bytes or millijoules, depending on ``use``.

    Attributes:
        percentile: the percentile of the latency.
        target: the target, if there are several; empty if there is one.
        sustained: whether the amount was measured at the end of a soak; ``original`` is from before it.
        most: the allowed amount; None if it is a share of an unknown amount.
        predicted: the prediction of the cost model when the widths were chosen.
        measured: the amount on the target, or of the shipped file; None if it was not measured.
        share: the share of the budget that is used; None if unknown.
        binding: whether the used share is the largest of all budgets.
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
    """Results on one of several targets; accuracies are fractions, None if they were not measured.

    ``reached``: on which computer they were measured, in words.
    """

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
    reached: str = ""
