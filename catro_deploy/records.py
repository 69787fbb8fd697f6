"""Frozen records that cross the borders between modules. No behaviour beyond what follows from their fields."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from catro_deploy.errors import BudgetError

__all__ = [
    "Accuracy",
    "Budget",
    "ClassAccuracy",
    "Group",
    "GroupPlan",
    "Keep",
    "Layer",
    "Plan",
    "Slot",
]


@dataclass(frozen=True)
class Budget:
    """What the pruned network may USE: ``0.5`` of the original's ``flops`` (multiply-accumulates)."""

    fraction: float
    unit: Literal["flops"] = "flops"

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read ``50%flops`` or ``9.25%flops``.

        Raises:
            BudgetError: another form, or a share that is not above 0 and at most 100%.
        """
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*flops\s*", text, re.IGNORECASE)
        if match is None:
            raise BudgetError(
                f"The budget {text!r} cannot be read.",
                "Write the share of the original's multiply-accumulates that may be used, such as 50%flops.",
            )
        fraction = float(match[1]) / 100
        if not 0 < fraction <= 1:
            raise BudgetError(f"The budget {text!r} is not above 0% and at most 100%.", "Try 50%flops.")
        return cls(fraction)

    def __str__(self) -> str:
        return f"{self.fraction * 100:.6g}%{self.unit}"


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

    ``producers`` are the convolutions and linear layers that make them, in the order of execution. ``fixed`` says
    why the group must stay as it is, and is empty if it may be pruned.
    """

    name: str
    width: int
    slots: tuple[Slot, ...]
    producers: tuple[str, ...]
    fixed: str = ""


@dataclass(frozen=True)
class Layer:
    """One convolution or linear layer as it runs: ``positions`` outputs of each channel, each of ``kernel`` weights."""

    name: str
    positions: int
    kernel: int
    in_channels: int
    out_channels: int
    groups: int = 1

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
class Plan:
    """All that is needed, with the weights, to build the pruned network again."""

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


@dataclass(frozen=True)
class ClassAccuracy:
    """Accuracy on the test images of one class: a fraction, by PyTorch and by the runtime that will serve."""

    name: str
    images: int
    torch: float
    runtime: float


@dataclass(frozen=True)
class Accuracy:
    """How one network does on the test images; accuracies and agreement are fractions."""

    torch: float
    runtime: float
    agreement: float
    largest_logit_difference: float
    per_class: tuple[ClassAccuracy, ...]
