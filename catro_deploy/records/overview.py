"""Overviews of runs, for lists of runs and for two runs side by side."""

from dataclasses import dataclass
from typing import Literal

from catro_deploy.records.figures import Interval

__all__ = ["Comparison", "Overview"]


@dataclass(frozen=True)
class Overview:
    """The figures of the finished stages of a run; unknown ones are None.

    Accuracies are fractions, latencies microseconds. ``accuracy_images`` names the images on which the accuracies were
    measured; before verification, these are the validation images. ``speedup`` is the original's latency over the
    pruned network's, with its 95% interval if it was measured.
    """

    name: str
    stage: str | None
    date: str | None
    model: str | None
    target: str | None
    budget: str | None
    model_classes: int | None = None
    input_shape: tuple[int, int, int] | None = None
    resized_to: tuple[int, int] | None = None
    classes: tuple[str, ...] | None = None
    original_macs: int | None = None
    pruned_macs: int | None = None
    original_params: int | None = None
    pruned_params: int | None = None
    original_accuracy: float | None = None
    accuracy: float | None = None
    accuracy_images: Literal["test", "validation"] | None = None
    test_images: int | None = None
    agreement: float | None = None
    original_us: float | None = None
    pruned_us: float | None = None
    speedup: float | None = None
    speedup_ci95: Interval | None = None
    latency_how: Literal["measured", "predicted", "estimate"] | None = None

    @property
    def latency_ratio(self) -> float | None:
        """The pruned network's latency as a share of the original's."""
        return None if self.original_us is None or self.pruned_us is None else self.pruned_us / self.original_us


@dataclass(frozen=True)
class Comparison:
    """Two runs, and the settings that differ, each as its name and both values."""

    earlier: Overview
    this: Overview
    settings: tuple[tuple[str, str, str], ...]
