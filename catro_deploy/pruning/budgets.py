"""Budgets as axes of the closed loop, and a network's use of each budget, for the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from catro_deploy.budget import MEDIAN, Budget
from catro_deploy.graph.onnx.footprint import Footprint
from catro_deploy.latency.candidate import CandidateLatency, Measured
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.latency.memory import PeakMemory
from catro_deploy.latency.pricing import Pricing
from catro_deploy.latency.size import SizeCost
from catro_deploy.pruning.closed_loop import MARGIN, Axis
from catro_deploy.records import BudgetPlan

__all__ = ["Counted", "Priced", "axes_of", "plan_of", "used_by"]


@dataclass(frozen=True)
class Priced:
    """A device on which budgets of latency and energy are to be met, with the cost of widths there.

    ``name`` distinguishes it from others, and is empty if it is the only one. ``is_measured``: whether candidates are
    measured on it.
    """

    pricing: Pricing
    name: str = ""
    is_measured: bool = True


@dataclass(frozen=True)
class Counted:
    """What is counted and not timed: multiply-accumulates, and the size and memory of the file.

    ``original`` is the footprint of the original's file, ``original_macs`` are its multiply-accumulates. ``size`` and
    ``memory`` are None if no budget limits them; ``original`` is None if both are.
    """

    macs: FlopsCost
    original_macs: int
    size: SizeCost | None = None
    memory: PeakMemory | None = None
    original: Footprint | None = None

    def original_amount(self, budget: Budget) -> float:
        """The original's use of what ``budget`` limits."""
        if budget.use == "MACs":
            return self.original_macs
        assert self.original is not None
        return self.original.file_bytes if budget.use == "size" else self.original.memory_bytes

    def most(self, budgets: Sequence[Budget]) -> float:
        """The strictest limit of these budgets, which all limit the same thing."""
        return min(budget.limit(self.original_amount(budget)) for budget in budgets)


def axes_of(budgets: Sequence[Budget], devices: Sequence[Priced], counted: Counted) -> list[Axis]:
    """An axis for each device, if budgets are timed, and for each counted quantity that is limited.

    Gains are weighed against the first: latency on the first device or, without one, multiply-accumulates.
    """
    timed = [budget for budget in budgets if budget.is_timed]
    axes = [_timed(timed, device, place) for place, device in enumerate(devices)]
    models = {"MACs": counted.macs, "size": counted.size, "memory": counted.memory}
    for use, model in models.items():
        mine = [budget for budget in budgets if budget.use == use]
        if mine and model is not None:
            axes.append(_counted(use, model, counted.most(mine)))
    return axes


def _timed(budgets: Sequence[Budget], device: Priced, place: int) -> Axis:
    original_us = device.pricing.original_us
    most = min((budget.limit(original_us) for budget in budgets if budget.use == "latency"), default=original_us)
    several = f" ({', '.join(map(str, budgets))})" if len(budgets) > 1 else ""
    name = f"latency{several} on {device.name}" if device.name else f"latency{several}"

    def share(measured: Measured) -> float:
        return max(_share(budget, measured.devices[place]) for budget in budgets)

    def delay(measured: Measured) -> float:
        found = measured.devices[place]
        strictest = max(budgets, key=lambda budget: _share(budget, found))
        return found.delay_us(strictest.percentile) / strictest.limit(used_by(strictest, found)[1])

    called: Literal["predicted", "estimate"] = "estimate" if device.pricing.how == "estimate" else "predicted"
    if not device.is_measured:
        return Axis(name, device.pricing.cost, most, margin=MARGIN, called=called)
    return Axis(name, device.pricing.cost, most, share, delay, MARGIN, called)


def _counted(use: str, model: FlopsCost | SizeCost | PeakMemory, most: float) -> Axis:
    if use == "MACs":
        return Axis(use, model, most)

    def share(measured: Measured) -> float:
        assert measured.footprint is not None
        return (measured.footprint.file_bytes if use == "size" else measured.footprint.memory_bytes) / most

    return Axis(use, model, most, share)


def _share(budget: Budget, found: CandidateLatency) -> float:
    used, original = used_by(budget, found)
    return used / budget.limit(original)


def used_by(budget: Budget, found: CandidateLatency) -> tuple[float, float]:
    """The candidate's and the original's use of a timed ``budget``, in its unit."""
    if budget.use == "latency":
        return found.at(budget.percentile)
    assert found.energy_mj is not None
    return found.energy_mj


def plan_of(
    budgets: Sequence[Budget],
    devices: Sequence[Priced],
    counted: Counted,
    widths: Mapping[str, int],
    measured: Measured | None,
) -> tuple[BudgetPlan, ...]:
    """The use of each budget by the network of these ``widths``; ``measured`` is None if nothing was measured."""
    found = []
    for budget in budgets:
        if budget.is_timed:
            found += [_timed_plan(budget, device, place, widths, measured) for place, device in enumerate(devices)]
        else:
            found.append(_counted_plan(budget, counted, widths, measured))
    most = max((one.share for one in found if one.share is not None), default=None)
    binding = next((at for at, one in enumerate(found) if one.share == most), None)
    return tuple(BudgetPlan(**{**vars(one), "binding": at == binding}) for at, one in enumerate(found))


def _timed_plan(
    budget: Budget, device: Priced, place: int, widths: Mapping[str, int], measured: Measured | None
) -> BudgetPlan:
    """Percentiles and energy are predicted to shrink in proportion to the median latency."""
    pricing = device.pricing
    of_original = pricing.cost.predict(widths) / pricing.original_us
    used, original = used_by(budget, measured.devices[place]) if measured and device.is_measured else (None, None)
    if budget.use == "latency" and budget.percentile == MEDIAN:
        predicted: float | None = pricing.cost.predict(widths)
    else:
        predicted = None if original is None else of_original * original
    if original is None and budget.use == "latency" and budget.percentile == MEDIAN:
        original = pricing.original_us
    known = original is not None or not budget.is_share
    most = budget.limit(original or 0.0) if known else None
    return BudgetPlan(str(budget), budget.use, most, original, predicted, used, binding=False, target=device.name)


def _counted_plan(budget: Budget, counted: Counted, widths: Mapping[str, int], measured: Measured | None) -> BudgetPlan:
    original = counted.original_amount(budget)
    model = {"MACs": counted.macs, "size": counted.size, "memory": counted.memory}[budget.use]
    assert model is not None
    footprint = measured.footprint if measured else None
    used: float | None = None
    if budget.use == "MACs":
        used = model.predict(widths)
    elif footprint is not None:
        used = footprint.file_bytes if budget.use == "size" else footprint.memory_bytes
    return BudgetPlan(
        str(budget), budget.use, budget.limit(original), original, model.predict(widths), used, binding=False
    )
