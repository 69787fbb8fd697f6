"""plan.json: the channels to keep, the reasons, and the savings."""

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
    """The cost of a group's widths as swept: pairs of width and microseconds of the layers that the group touches.

    In measurements all groups are widened together; in estimates the others keep their full widths. ``candidates`` are
    the efficient widths; ``period`` is the power of two of which nearly all of them are multiples.
    """

    swept: tuple[tuple[Count, NonNegative], ...]
    candidates: tuple[Count, ...]
    period: PositiveCount


@dataclass(frozen=True)
class CostErrors:
    """Errors of a cost model on ``networks`` held-out networks, with the fractions of them within 5% and 10%."""

    networks: PositiveCount
    within_5: Share
    within_10: Share
    rmspe: Number
    spearman: Number


@dataclass(frozen=True)
class BudgetPlan:
    """One budget, and how much of it the chosen network uses.

    Amounts are microseconds, multiply-accumulates, bytes or millijoules, depending on ``use``. ``predicted`` is from
    the cost model; ``measured`` was measured on the target, or counted from a file that was written like the one to be
    served. Either is None if not available. ``most`` is None if it is a share of an unknown ``original``. ``binding``:
    whether the used share is the largest of all budgets. ``target`` is the device that it was measured on if there are
    several, else empty.
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
        """The share of the budget that is used: measured if available, else predicted; None if unknown."""
        used = self.predicted if self.measured is None else self.measured
        return None if used is None or self.most is None else used / self.most


@dataclass(frozen=True)
class LatencyPlan:
    """How latency on the target determined the widths. All times are in microseconds.

    ``how`` is whether the times come from measurements on the target or from an estimate. ``by_layer`` holds each
    layer's predicted time before and after pruning; 0 after for a removed layer. ``gap`` is the optimality gap of an
    exact allocation, as a share; None for other allocations.
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
    """How close reconstruction, which solves the layers of the cut network again, came to the original.

    ``kl_cut`` and ``kl_reconstructed`` are mean KL divergences, in nats at temperature 2, of the original's outputs, on
    images of the size at which the pruned network computes, from the outputs of the network right after the cut and
    after reconstruction. They are computed on images held out from solving, or on all images if there are fewer than 4.
    ``explained`` is R^2 of each solved layer's target, on the images that it was solved from; ``left`` gives the reason
    why each of the other affected layers was not solved. ``loss_predicted`` is the value of ``kl_reconstructed`` that
    the choice of widths predicted; None without measured worth.
    """

    kl_cut: Number
    kl_reconstructed: Number
    explained: dict[str, Number]
    left: dict[str, str]
    loss_predicted: Number | None = None


@dataclass(frozen=True)
class Plan(Record):
    """Everything that is needed, besides the weights, to rebuild the pruned network.

    ``dropped`` names the residual branches that were removed; ``groups`` includes their groups, with no channel kept.
    ``keeps`` holds the kept channels of the remaining modules. ``budget`` is the one by which the widths were chosen;
    ``budgets`` are all budgets, on each target. ``latency`` is for ``target``, and None if the budget counts
    multiply-accumulates; ``latency_on`` holds the same for further targets. ``search_path`` holds the steps of
    Algorithm 2 under a budget of multiply-accumulates, each as a group and the width that it grows to.
    ``reconstruction`` and ``first_look`` are None if there was none. ``architecture`` describes a network that is built
    from a folder whose name is ``model``; empty for others. ``resized_to`` is the height and width to which the pruned
    network resizes its images, which have ``input_shape``; None if it does not resize them.
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
        """Check the budget, and the settings that are read back."""
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
        """Whether the remaining layers were solved again to match the original's feature maps."""
        return self.reconstruction is not None
