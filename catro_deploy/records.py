"""Frozen records that cross the borders between modules. No behaviour beyond what follows from their fields."""

import re
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from catro_deploy.errors import BudgetError
from catro_deploy.inspection import FirstLook

__all__ = [
    "Accuracy",
    "Branch",
    "Budget",
    "ClassAccuracy",
    "CostErrors",
    "Group",
    "GroupPlan",
    "Keep",
    "LatencyPlan",
    "Layer",
    "Plan",
    "ReconstructionPlan",
    "Round",
    "Slot",
    "Staircase",
]


@dataclass(frozen=True)
class Budget:
    """What the pruned network may USE.

    ``0.5`` of the original's ``flops`` (multiply-accumulates) or of its measured latency (``x``), or so many ``us``.
    """

    amount: float
    unit: Literal["flops", "x", "us"] = "flops"

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read ``0.5x``, ``400us``, ``1.5ms`` or ``9.25%flops``.

        Raises:
            BudgetError: another form, or a share that is not above 0 and at most 1.
        """
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(x|us|μs|ms|%\s*flops)\s*", text.casefold())
        if match is None:
            raise BudgetError(
                f"The budget {text!r} cannot be read.",
                "Write what may be used: 0.5x (half of the original's latency), 400us, 1.5ms, or 50%flops (half of its "
                "multiply-accumulates).",
            )
        number, unit = Decimal(match[1]), match[2]
        if unit.endswith("flops"):
            budget = cls(float(number / 100), "flops")
        elif unit == "x":
            budget = cls(float(number), "x")
        else:
            budget = cls(float(number * 1000 if unit == "ms" else number), "us")
        if not 0 < budget.amount <= (sys.float_info.max if budget.unit == "us" else 1):
            raise BudgetError(
                f"The budget {text!r} is not above 0 and at most what the original uses.", "Try 0.5x or 50%flops."
            )
        return budget

    def limit(self, original: float) -> float:
        """What may be used of an ``original`` that uses so much, in its unit."""
        return self.amount if self.unit == "us" else self.amount * original

    def __str__(self) -> str:
        amount = Decimal(repr(self.amount))  # exact, and written without an exponent: parse() reads it back
        if self.unit == "flops":
            return f"{(amount * 100).normalize():f}%flops"
        return f"{amount.normalize():f}{self.unit}"


@dataclass(frozen=True)
class Slot:
    """Where a group's channels lie in one module: ``index[j]`` on ``axis`` belongs to the group's ``channel[j]``."""

    module: str
    axis: Literal["out", "in"]
    index: tuple[int, ...]
    channel: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Channels that must be kept or dropped together, in every module that makes or reads them.

    ``producers`` are the convolutions and linear layers that make them, as they run. ``fixed`` says why it must stay.
    """

    name: str
    width: int
    slots: tuple[Slot, ...]
    producers: tuple[str, ...]
    fixed: str = ""


@dataclass(frozen=True)
class Branch:
    """A residual branch that may vanish whole, named after its last convolution or linear layer.

    ``groups`` are those whose channels lie inside it alone: all of them go to width 0, which means that the branch is
    gone, or none does. ``modules`` are gone with it.
    """

    name: str
    groups: tuple[str, ...]
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layer:
    """One convolution or linear layer as it runs: ``positions`` outputs of each channel, each of ``kernel`` weights.

    ``stride`` is that of each axis: some ``positions * stride**2`` inputs of each channel are read.
    """

    name: str
    positions: int
    kernel: int
    in_channels: int
    out_channels: int
    groups: int = 1
    stride: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one image."""
        return self.positions * self.kernel * self.in_channels * self.out_channels // self.groups


@dataclass(frozen=True)
class Keep:
    """Which channels of one module stay, on each axis; None keeps all."""

    out: tuple[int, ...] | None = None
    inputs: tuple[int, ...] | None = None


@dataclass(frozen=True)
class GroupPlan:
    """What was decided for one group, and on what grounds."""

    name: str
    width: int
    kept: tuple[int, ...]
    producers: tuple[str, ...]
    trace_ratio: float | None = None
    rounds: int | None = None
    scale: float | None = None
    fixed: str = ""


@dataclass(frozen=True)
class Round:
    """One turn of the closed loop: an allocation, and what its network took, measured in turns with the original.

    ``ratio`` is the pruned network's latency over the original's, with its 95% interval.
    """

    predicted_us: float
    measured_us: float
    original_us: float
    ratio: float
    ratio_ci95: tuple[float, float]
    widths: dict[str, int]


@dataclass(frozen=True)
class Staircase:
    """What the width of a group costs: (width, microseconds of the layers that it touches) as swept.

    Measured, all groups widen together; estimated, the others keep their full widths. ``candidates`` are the widths
    worth having; ``period`` is the power of two that nearly all of them are multiples of.
    """

    swept: tuple[tuple[int, float], ...]
    candidates: tuple[int, ...]
    period: int


@dataclass(frozen=True)
class CostErrors:
    """How a cost model does on ``networks`` that took part in no fit; shares of 1 within 5% and 10%."""

    networks: int
    within_5: float
    within_10: float
    rmspe: float
    spearman: float


@dataclass(frozen=True)
class LatencyPlan:
    """How the widths follow from latency on the target. All times in microseconds.

    ``how`` says whether times come from measurements on the target or from an estimate. ``by_layer`` has each layer's
    predicted time before and after; a layer that is gone has 0. ``gap`` is what an exact allocation may have missed, as
    a share; None of another one.
    """

    how: Literal["measured", "estimate"]
    source: str
    budget_us: float
    original_us: float
    predicted_us: float
    rounds: tuple[Round, ...]
    by_layer: dict[str, tuple[float, float]]
    staircases: dict[str, Staircase]
    errors: CostErrors | None
    gap: float | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ReconstructionPlan:
    """What solving the layers of the cut network again gave back.

    ``kl_cut`` and ``kl_reconstructed`` are the mean KL divergence, in nats at temperature 2, of the original's answers
    from those of the network right after the cut and after reconstruction, on images held out from solving (of fewer
    than 4, on all). ``explained`` is R^2 of what each solved layer was to put out, on those that it was solved from;
    ``left`` says why other layers that the cut changed were left as they are. ``loss_predicted`` is what the choice of
    widths took ``kl_reconstructed`` to become; None where it did not measure.
    """

    kl_cut: float
    kl_reconstructed: float
    explained: dict[str, float]
    left: dict[str, str]
    loss_predicted: float | None = None


@dataclass(frozen=True)
class Plan:
    """All that is needed, with the weights, to build the pruned network again.

    ``dropped`` names the residual branches that are gone; ``keeps`` are of what is left. ``latency`` is None if the
    budget counts multiply-accumulates. ``search_path`` are Algorithm 2's steps under such a budget: a group and the
    width that it grows to. ``reconstruction`` and ``first_look`` are None where there was none.
    """

    model: str
    model_classes: int
    input_shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...]
    class_indices: tuple[int, ...]
    head: str
    target: str
    budget: str
    criterion: str
    allocation: str
    groups: tuple[GroupPlan, ...]
    keeps: dict[str, Keep]
    original_macs: int
    pruned_macs: int
    original_params: int
    pruned_params: int
    settings: dict[str, Any] = field(default_factory=dict)
    format: int = 1
    dropped: tuple[str, ...] = ()
    latency: LatencyPlan | None = None
    search_path: tuple[tuple[str, int], ...] = ()
    reconstruction: ReconstructionPlan | None = None
    first_look: FirstLook | None = None

    @property
    def reconstructed(self) -> bool:
        """Whether the layers that are left were solved again for the original's feature maps."""
        return self.reconstruction is not None


@dataclass(frozen=True)
class ClassAccuracy:
    """Accuracy on the test images of one class: a fraction, by PyTorch and by the runtime that will serve."""

    name: str
    images: int
    torch: float
    runtime: float


@dataclass(frozen=True)
class Accuracy:
    """How one network does on the test images, and how PyTorch and the runtime agree about that; fractions.

    Without labels there are no accuracies: ``torch`` and ``runtime`` are None, and ``per_class`` is empty.
    """

    torch: float | None
    runtime: float | None
    agreement: float
    largest_logit_difference: float
    per_class: tuple[ClassAccuracy, ...]
