"""plan.json: which channels stay, why, and what that saves."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from catro_deploy.budget import Budget, Use
from catro_deploy.errors import BudgetError
from catro_deploy.records.base import Count, NonNegative, Number, Positive, PositiveCount, Record, Share
from catro_deploy.records.bench import Speedup
from catro_deploy.records.first_look import FirstLook
from catro_deploy.records.network import Keep

__all__ = ["BudgetPlan", "CostErrors", "GroupPlan", "LatencyPlan", "Plan", "ReconstructionPlan", "Round", "Staircase"]


@dataclass(frozen=True)
class GroupPlan:
    """The decision about one group, and its reason.

    ``kept`` is empty for a group that was removed with its residual branch.
    """

    name: str
    width: PositiveCount
    kept: tuple[Count, ...]
    producers: tuple[str, ...]
    trace_ratio: Number | None = None
    rounds: Count | None = None
    scale: Number | None = None
    fixed: str = ""


@dataclass(frozen=True)
class Round:
    """One round of the closed loop: an allocation, and its network's latency, measured interleaved with the original's.

    ``taken`` marks the round whose network the plan describes.
    """

    predicted_us: Positive
    measured_us: Positive
    original_us: Positive
    speedup: Speedup
    widths: dict[str, Count]
    taken: bool = False


@dataclass(frozen=True)
class Staircase:
    """The cost of a group's widths: (width, microseconds of the layers that it touches) as swept.

    In measurements all groups widen together; in estimates the others keep their full widths. ``candidates`` are the
    efficient widths; ``period`` is the power of two that nearly all of them are multiples of.
    """

    swept: tuple[tuple[Count, NonNegative], ...]
    candidates: tuple[Count, ...]
    period: PositiveCount


@dataclass(frozen=True)
class CostErrors:
    """Errors of a cost model on ``networks`` held-out networks; fractions within 5% and 10%."""

    networks: PositiveCount
    within_5: Share
    within_10: Share
    rmspe: Number
    spearman: Number


@dataclass(frozen=True)
class BudgetPlan:
    """One budget, and what the network that was taken uses of it.

    Amounts are microseconds, multiply-accumulates, bytes or millijoules, as ``use`` has them. ``predicted`` is by the
    cost model, ``measured`` on the target or counted off a file that was written like the one to be served; what was
    neither is None. ``most`` is None where it is a share of an ``original`` that is not known. ``binding``: of no other
    budget is so large a share used. ``target`` is the device that it was measured on, of several; else empty.
    """

    budget: str
    use: Use
    most: Positive | None
    original: Positive | None
    predicted: NonNegative | None
    measured: NonNegative | None
    binding: bool
    target: str = ""

    @property
    def share(self) -> float | None:
        """The share of the budget that is used, as far as that is known."""
        used = self.predicted if self.measured is None else self.measured
        return None if used is None or self.most is None else used / self.most


@dataclass(frozen=True)
class LatencyPlan:
    """How the widths follow from latency on the target. All times in microseconds.

    ``how`` says whether times come from measurements on the target or from an estimate. ``by_layer`` has each layer's
    predicted time before and after; a removed layer has 0. ``gap`` is the optimality gap of an exact allocation, as a
    share; None for another one.
    """

    how: Literal["measured", "estimate"]
    source: str
    budget_us: Positive
    original_us: Positive
    predicted_us: Positive
    rounds: tuple[Round, ...]
    by_layer: dict[str, tuple[NonNegative, NonNegative]]
    staircases: dict[str, Staircase]
    errors: CostErrors | None
    gap: Number | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ReconstructionPlan:
    """How close reconstruction, solving the layers of the cut network again, came to the original.

    ``kl_cut`` and ``kl_reconstructed`` are the mean KL divergence, in nats at temperature 2, of the original's answers,
    for images of the size that the pruned network computes at, from those of the network right after the cut and after
    reconstruction, on images held out from solving (of fewer than 4, on all). ``explained`` is R^2 of each solved
    layer's target, on the images that it was solved from; ``left`` says why other affected layers were not solved.
    ``loss_predicted`` is the value of ``kl_reconstructed`` that the choice of widths predicted; None without measured
    worth.
    """

    kl_cut: Number
    kl_reconstructed: Number
    explained: dict[str, Number]
    left: dict[str, str]
    loss_predicted: Number | None = None


@dataclass(frozen=True)
class Plan(Record):
    """Everything that is needed besides weights to build the pruned network again.

    ``dropped`` names the residual branches that were removed; ``groups`` has their groups, too, with no channel kept.
    ``keeps`` are of the remaining modules. ``budget`` is the one that widths were chosen by; ``budgets`` are all, on
    each target. ``latency`` is None if the budget counts multiply-accumulates; it is on ``target``, and ``latency_on``
    the same on further ones. ``search_path`` are Algorithm 2's steps under such a budget: a group and the width that it
    grows to. ``reconstruction`` and ``first_look`` are None where there was none. ``architecture`` describes a network
    that is built from a folder, whose name is ``model``; empty for others. ``resized_to`` is the height and width to
    which the pruned network resizes its images, which have ``input_shape``; None if it does not.
    """

    model: str
    model_classes: PositiveCount
    input_shape: tuple[PositiveCount, PositiveCount, PositiveCount]
    mean: tuple[Number, ...]
    std: tuple[Positive, ...]
    classes: tuple[str, ...]
    class_indices: tuple[Count, ...]
    head: str
    target: str
    budget: str
    criterion: str
    allocation: str
    groups: Annotated[tuple[GroupPlan, ...], MinLen(1)]
    keeps: dict[str, Keep]
    original_macs: PositiveCount
    pruned_macs: PositiveCount
    original_params: PositiveCount
    pruned_params: PositiveCount
    settings: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    latency: LatencyPlan | None = None
    search_path: tuple[tuple[str, PositiveCount], ...] = ()
    reconstruction: ReconstructionPlan | None = None
    first_look: FirstLook | None = None
    architecture: dict[str, Any] = field(default_factory=dict)
    budgets: tuple[BudgetPlan, ...] = ()
    latency_on: dict[str, LatencyPlan] = field(default_factory=dict)
    resized_to: tuple[PositiveCount, PositiveCount] | None = None

    def __post_init__(self) -> None:
        """Check the budget, and those settings that are read again."""
        for key in ("classes", "ignore"):
            names = self.settings.get(key, [])
            if not isinstance(names, list | tuple) or not all(isinstance(name, str | int) for name in names):
                raise ValueError(f"settings.{key} must be a list of names")
        if not isinstance(self.settings.get("device", ""), str):
            raise ValueError("settings.device must be a name")
        try:
            Budget.parse(self.budget)
        except BudgetError as error:
            raise ValueError(f"budget: {error.problem}") from None

    @property
    def reconstructed(self) -> bool:
        """Whether the remaining layers were solved again for the original's feature maps."""
        return self.reconstruction is not None
