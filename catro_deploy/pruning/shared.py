"""What prunings of one checkpoint by the same images have in common: measured by the first that needs it."""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import TypeVar

from catro_deploy.graph.coupling.trace import Network
from catro_deploy.latency.candidate import CandidateLatency
from catro_deploy.latency.repetition import Repetition
from catro_deploy.latency.scaling import Correction
from catro_deploy.latency.template import Template
from catro_deploy.pruning.scoring import Scored
from catro_deploy.reconstruction.measurements import Measurements
from catro_deploy.settings import PruneSettings

__all__ = ["Shared", "once"]

DECIDING = {
    "criterion",
    "ignore",
    "samples_per_class",
    "max_samples",
    "reconstruct_images",
    "batch_size",
    "compute",
    "seed",
}
"""The settings in [prune] that determine in which order channels are removed, and the losses of widths and branches.

The input size is not among them: at a smaller one, the order and the losses are those of the first size.
"""
SCORING = {
    "ignore", "samples_per_class", "max_samples", "batch_size", "compute", "seed", "d_min", "prune_first", "ridge",
}  # fmt: skip
"""The settings in [prune] that determine class separation."""

Key = TypeVar("Key")
Value = TypeVar("Value")
Size = tuple[int, int]
"""Height and width of images."""


@dataclass(frozen=True)
class Shared:
    """Results that do not depend on the budget, by the settings or the use that determine them.

    Attributes:
        traces: the network at each input size; None: the images' own.
        measurements: orders of removal and losses.
        scored: the groups and their class separation.
        branch_worths: the class separation of residual branches, by name.
        timed: whole networks, measured to adjust predictions; by name, input size (None: the original's) and use.
        corrections: of predictions at another input size, by this size and use.
        exported: files of originals, by use.
        templates: exports from which candidates are cut, by input size, removed branches, opset, and whether they take
            any number of images; None if candidates cannot be cut from them.
        repetitions: how fast the original was in each use, at the median and at some percentiles, which shows whether a
            later measurement is disturbed.
    """

    traces: dict[Size | None, Network] = field(default_factory=dict)
    measurements: dict[str, Measurements] = field(default_factory=dict)
    scored: dict[str, Scored] = field(default_factory=dict)
    branch_worths: dict[str, dict[str, float]] = field(default_factory=dict)
    timed: dict[tuple[str, Size | None, str], CandidateLatency] = field(default_factory=dict)
    corrections: dict[tuple[Size, str], Correction] = field(default_factory=dict)
    exported: dict[str, bytes] = field(default_factory=dict)
    templates: dict[tuple[Size | None, tuple[str, ...], int, bool], Template | None] = field(default_factory=dict)
    repetitions: dict[str, Repetition[CandidateLatency]] = field(default_factory=dict)

    def measurements_for(self, settings: PruneSettings) -> Measurements:
        """The measurements of prunings with these settings; empty at first."""
        return self.measurements.setdefault(settings.model_dump_json(include=DECIDING), Measurements())

    def scored_once(self, settings: PruneSettings, score: Callable[[], Scored]) -> Scored:
        """The result of ``score`` with these settings."""
        return once(self.scored, settings.model_dump_json(include=SCORING), score)

    def branch_worths_once(self, settings: PruneSettings, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
        """The result of ``measure`` with these settings."""
        return once(self.branch_worths, settings.model_dump_json(include=SCORING), measure)


def once(known: MutableMapping[Key, Value], key: Key, find: Callable[[], Value]) -> Value:
    """The value ``known`` at ``key``; if there is none, it is found and kept."""
    if key not in known:
        known[key] = find()
    return known[key]
