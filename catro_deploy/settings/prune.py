"""``[prune]``."""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from catro_deploy.budget import Budget, Budgets
from catro_deploy.errors import BudgetError
from catro_deploy.settings import sides
from catro_deploy.settings.budget import BudgetSetting, EnergySetting, MemorySetting, SizeSetting
from catro_deploy.settings.section import AUTO, REPEATABLE, Compute, Section

__all__ = ["PruneSettings"]


class PruneSettings(Section):
    """``[prune]``: which channels stay."""

    target: Annotated[str, REPEATABLE] = Field(
        "x86-cpu",
        description="Target that the network will run on, see `catro-deploy targets list`; if repeated: one network "
        "that meets its budgets on each",
    )
    also: list[str] = Field(
        default_factory=list,
        description="Further targets on which the same network must meet its budgets: NAME, NAME:fp32 for a precision, "
        "NAME@DEVICE for one of your devices",
    )
    device: str = Field("", description="Device of the target, see `catro-deploy device list`; default: this machine")
    classes: list[int | str] = Field(
        default_factory=list,
        description="Classes to keep: a group, names or indices; the logits are in this order; default: all classes",
    )
    budget: BudgetSetting = Field(
        Budgets((Budget(0.5, "x"),)),
        description="What the pruned network may use: a share of the original's latency on the target (0.5x), a "
        "latency (400us, 1.5ms), a percentile (900us@p99), or a share of multiply-accumulates (50%flops); if "
        "several are given, all must be met; auto: `run` searches for the smallest latency within max_drop",
    )
    max_size: SizeSetting = Field(
        None,
        description="Largest size of the ONNX file in the served precision: 300kB, 1.5MiB, or 0.25x of the original's",
    )
    max_memory: MemorySetting = Field(
        None, description="Largest peak memory of feature maps: 256KiB, 2MB, or 0.5x of what the original needs"
    )
    max_energy: EnergySetting = Field(
        None,
        description="Largest energy of an inference, on devices that report their power: 3mJ, or 0.5x of the "
        "original's",
    )
    input_size: sides.SizeSetting | None = Field(
        None,
        description="Height and width at which the pruned network computes, 24 or 120x160: it takes the original's "
        "images and resizes them itself; default: the size of these images",
    )
    criterion: Literal["catro", "obs", "l1"] = Field(
        "catro",
        description="Which channels stay: catro: those that separate the wanted classes; obs: those that the next "
        "layers need, whatever the class; l1: those with the largest filter norms",
    )
    reconstruct: bool = Field(
        True,
        description="After the cut, refit every layer to the original's feature maps; false: the paper's method",
    )
    worth: Literal["auto", "measured", "scatter"] = Field(
        "auto",
        description="How the worth of a width is determined: measured: the loss without it; scatter: its class "
        "separation, as in the paper; auto: measured for latency budgets, for criterion obs, and for images without "
        "labels, if layers are reconstructed",
    )
    reconstruct_images: PositiveInt = Field(1024, description="Images that layers are refitted on; labels are not used")
    allocation: Literal["auto", "exact", "greedy", "flops", "uniform"] = Field(
        "auto",
        description="How widths are chosen: exact: a proven optimum; greedy: the paper's Algorithm 2 with the budget's "
        "cost; flops: the same with multiply-accumulates; uniform: the same share for all; auto: exact, but flops for "
        "budgets of multiply-accumulates with worth by class separation",
    )
    depth: Literal["auto", "never"] = Field(
        "auto", description="auto: latency budgets may remove residual branches; never: widths only"
    )
    samples_per_class: PositiveInt = Field(
        128, ge=2, description="Training images of each class that channels are scored on"
    )
    max_samples: PositiveInt = Field(
        8192, description="Maximum number of these images, of all classes together; but at least two of each class"
    )
    d_min: PositiveInt = Field(3, description="Smallest number of channels of a group")
    step: PositiveInt = Field(1, description="Channels added at a time")
    max_width: float = Field(
        1.0, gt=0, le=1, description="Largest share of its channels that a group keeps; the paper: 0.5 or 0.375"
    )
    prune_first: bool = Field(True, description="Whether channels of the first convolution may be removed")
    temperature: PositiveFloat = Field(1.0, description="Temperature of the channel scores")
    ridge: NonNegativeFloat = Field(
        10.0, description="Penalty on keeping a channel, in mean within-class scatters of its layer; the paper: 0"
    )
    epsilon: NonNegativeFloat = Field(
        1e-9, description="Algorithm 1 stops when the trace ratio grows by no more than this"
    )
    ignore: list[str] = Field(
        default_factory=list, description="Names of modules that keep all channels, including modules inside them"
    )
    batch_size: PositiveInt = Field(
        128, description="Images per batch when channels are scored; less on a CPU if images are large"
    )
    activation_memory: PositiveFloat = Field(
        2.0, le=1e6, description="GiB of feature maps kept in memory; the rest on disk"
    )
    compute: Compute = Field("auto", description="Where channels are scored; auto: the GPU if PyTorch sees one")
    seed: NonNegativeInt = Field(0, description="Seed of the selection's random start")

    @model_validator(mode="before")
    @classmethod
    def _first_target_of_several(cls, given: Any) -> Any:  # noqa: ANN401 - whatever a file holds
        """Split ``target = "a, b"``, or a list, into the target a and ``also`` b."""
        if not isinstance(given, dict):
            return given
        target, also = given.get("target"), given.get("also", [])
        texts = [target] if isinstance(target, str) else target
        if not (isinstance(texts, list) and isinstance(also, list) and all(isinstance(text, str) for text in texts)):
            return given
        first, *others = [name.strip() for text in texts for name in text.split(",")] or [""]
        named = (first, *others) if others else ()  # a run that is continued has them in its settings, too
        return {**given, "target": first, "also": [*others, *(name for name in also if name not in named)]}

    @property
    def given_budget(self) -> Budget:
        """The budget that widths are chosen by, if it is given and not searched.

        Raises:
            BudgetError: it is ``auto``.
        """
        if self.budget == AUTO:
            raise BudgetError(
                "The budget auto works only with `catro-deploy run`, which searches for it.",
                "Name a budget, such as 0.5x, 400us or 50%flops.",
            )
        return self.budget.main

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """All budgets that must be met; the first is the one that widths are chosen by.

        Raises:
            BudgetError: the budget is to be searched.
        """
        main = self.given_budget
        assert self.budget != AUTO
        others = (*self.budget.parts, *filter(None, (self.max_size, self.max_memory, self.max_energy)))
        return (main, *(one for one in others if one != main))

    def samples_of_each(self, classes: int) -> int:
        """Images of each of ``classes`` classes that channels are scored on."""
        return max(2, min(self.samples_per_class, self.max_samples // classes))

    @property
    def is_timed(self) -> bool:
        """Whether widths depend on a device: by latency, given or to be searched, or by energy."""
        return self.budget == AUTO or any(budget.is_timed for budget in self.budgets)
