"""variants.json: prunings with different settings, to one or several budgets, and the one that is taken."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from catro_deploy.records.base import Count, Divergence, NonNegative, PositiveCount, Record, Share
from catro_deploy.records.bench import Speedup

__all__ = [
    "BUDGET", "CHOICES", "INPUT_SIZE", "STEPS", "TARGET", "TEMPERATURE", "Screened", "TriedVariant", "Variant",
    "Variants",
]  # fmt: skip

CHOICES: Mapping[str, tuple[str, ...]] = {
    "prune.criterion": ("catro", "obs"),
    "prune.worth": ("measured", "scatter"),
    "prune.depth": ("auto", "never"),
    "quantize.precision": ("int8",),
}
"""Settings that a variant may change, and the allowed values; those of ``OTHERS`` are given by patterns."""

BUDGET, INPUT_SIZE, TARGET, TEMPERATURE = "prune.budget", "prune.input_size", "prune.target", "prune.temperature"
OTHERS: Mapping[str, re.Pattern[str]] = {
    BUDGET: re.compile(r"[\w.@%]+(, [\w.@%]+)*"),
    INPUT_SIZE: re.compile(r"[1-9]\d*(x[1-9]\d*)?"),
    TARGET: re.compile(r"\w[\w.+-]*"),
    TEMPERATURE: re.compile(r"(?=.*[1-9])\d+(\.\d+)?"),
}

STEPS = ("reconstructed", "up to 100 steps", "1 epoch")
"""The steps of a variant; only the best variants of each step reach the next. If an epoch has at most 100 steps, the
second step is the last."""


@dataclass(frozen=True)
class Variant:
    """One pruning, and how close it is to the original on validation images.

    Attributes:
        changes: the settings that differ from those of the run, as ``section.key``.
        speedup: measured speedup over the original on the run's own target; None if no network met the budget.
        macs_share: the share of the original's multiply-accumulates.
        kl_nats: divergence from the original's outputs after each step that it reached, at the best common scale of
            its logits.
        agreement: the share of the images for which it predicts the same class as the original, after the last step.
        validation_accuracy: accuracy after the last step; None without labels.
        seconds: the time that each of its steps took; of a variant that met no budget, that of the first.
        screened_nats: the divergence that screening found; None if it was not screened, or found no network.
    """

    changes: dict[str, str]
    speedup: Speedup | None = None
    macs_share: NonNegative | None = None
    kl_nats: tuple[Divergence, ...] = ()
    agreement: Share | None = None
    validation_accuracy: Share | None = None
    seconds: tuple[NonNegative, ...] = ()
    screened_nats: Divergence | None = None

    def __post_init__(self) -> None:
        """Check that the changes are allowed, and that divergences are those of a variant that met the budget."""
        _require_allowed(self.changes)
        if len(self.kl_nats) > len(STEPS) or bool(self.kl_nats) > (self.speedup is not None):
            raise ValueError("kl_nats must be of the steps of a variant that met the budget")

    @property
    def name(self) -> str:
        """The changes in words."""
        changed = [f"{place.partition('.')[2].replace('_', ' ')} {value}" for place, value in self.changes.items()]
        return ", ".join(changed) or "as set"


@dataclass(frozen=True)
class TriedVariant(Variant, Record):
    """variant.json of a variant's folder: the finished steps."""


@dataclass(frozen=True)
class Screened(Record):
    """screened.json of a variant's folder: what screening found, and how long it took.

    Attributes:
        changes: those of the variant.
        kl_nats: the divergence from the original's outputs; None if no network is predicted to meet the budget.
        seconds: the time that it took.
        dropped: the number of residual branches that were removed.
    """

    changes: dict[str, str]
    kl_nats: Divergence | None
    seconds: NonNegative
    dropped: Count = 0

    def __post_init__(self) -> None:
        """Check that the changes are allowed."""
        _require_allowed(self.changes)


@dataclass(frozen=True)
class Variants(Record):
    """All variants that were pruned, best first.

    Attributes:
        variants: these variants.
        validation_images: how many images they were judged on.
        minutes: the time that the search took.
        left_out: the number of variants that were not pruned for lack of time.
        screened: the number of variants that were screened, whether or not they were pruned then.
    """

    variants: tuple[Variant, ...]
    validation_images: PositiveCount
    minutes: NonNegative
    left_out: Count = 0
    screened: Count = 0

    def __post_init__(self) -> None:
        """Check that the first variant met the budget."""
        if not self.variants or not self.variants[0].kl_nats:
            raise ValueError("the first of variants must have met the budget")


def _require_allowed(changes: Mapping[str, str]) -> None:
    for place, value in changes.items():
        known = place in OTHERS and OTHERS[place].fullmatch(value)
        if not known and value not in CHOICES.get(place, ()):
            raise ValueError(f"changes cannot set {place} to {value!r}")
