"""The variants of a pruning: combinations of settings that may meet the same budget with different losses."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from catro_deploy.budget import Budgets
from catro_deploy.errors import SettingsError
from catro_deploy.graph.coupling.layers import whole_stride
from catro_deploy.pruning.cutting import Classifier, at_input_size
from catro_deploy.pruning.solvers import measures_worth
from catro_deploy.records import Speedup
from catro_deploy.records.variants import BUDGET, CHOICES, INPUT_SIZE, TARGET, TEMPERATURE
from catro_deploy.settings import Settings
from catro_deploy.settings.sides import size_text
from catro_deploy.stages.other_runtimes import at_equal_latency
from catro_deploy.targets import load_target

__all__ = [
    "CRITERION", "PRECISION", "WORTH", "Available", "smaller_sizes", "ways", "with_branches_removed", "with_budget",
]  # fmt: skip

CRITERION, WORTH, DEPTH, PRECISION = CHOICES
NO_DEPTH = "never"
SHARES = (7 / 8, 3 / 4, 5 / 8)
"""Shares of the original's input size."""
TEMPERATURES = (1 / 2, 2)
"""Shares of the temperature in the settings."""


@dataclass(frozen=True)
class Available:
    """Values of knobs that depend on the network and on this machine.

    Attributes:
        sizes: heights and widths that images may be resized to.
        targets: targets that differ in their runtime, and how much faster the original is there.
    """

    sizes: Sequence[tuple[int, int]] = ()
    targets: Mapping[str, Speedup] = field(default_factory=dict)


def smaller_sizes(original: Classifier) -> list[tuple[int, int]]:
    """Heights and widths smaller than those of the images at which ``original`` works, the largest first.

    They are multiples of its stride: a size in between costs as much as the next larger one.
    """
    height, width = original.input_shape[1:]
    stride = whole_stride(original.model, original.input_shape)
    sizes = ((stride * round(height * share / stride), stride * round(width * share / stride)) for share in SHARES)
    smaller = [size for size in dict.fromkeys(sizes) if all(size) and size[0] < height and size[1] < width]
    return [size for size in smaller if _works_at(original, size)]


def _works_at(original: Classifier, size: tuple[int, int]) -> bool:
    try:
        at_input_size(original, size)
    except SettingsError:
        return False
    return True


def ways(settings: Settings, available: Available, *, labelled: bool) -> list[dict[str, str]]:
    """The settings that each variant changes, as ``section.key``; the first one changes none.

    Criteria that compare classes, and their class separation, need images that are ``labelled``.
    """
    alternatives = _alternatives(settings, labelled, available)
    found = []
    for values in itertools.product(*alternatives.values()):
        changes = {place: value for place, value in zip(alternatives, values, strict=True) if value}
        if _is_possible(changes, settings):
            found.append(changes)
    return sorted(found, key=len)


def _alternatives(settings: Settings, labelled: bool, available: Available) -> Mapping[str, tuple[str, ...]]:
    """The values of each setting that may change; an empty value leaves it unchanged.

    The last setting is tried first, because it gains most in most networks.
    """
    chosen, knobs = settings.prune, settings.search.knobs
    found: dict[str, tuple[str, ...]] = {}
    if "criterion" in knobs and labelled and chosen.reconstruct:
        found[CRITERION] = _others(CRITERION, chosen.criterion)
    if "worth" in knobs and labelled and chosen.reconstruct:
        found[WORTH] = _others(WORTH, _worth(settings))
    if "temperature" in knobs and labelled:
        found[TEMPERATURE] = ("", *(f"{share * chosen.temperature:g}" for share in TEMPERATURES))
    if "depth" in knobs:
        found[DEPTH] = _others(DEPTH, chosen.depth)
    if "input_size" in knobs and chosen.input_size is None:
        found[INPUT_SIZE] = ("", *map(size_text, available.sizes))
    if "runtime" in knobs:
        found[TARGET] = ("", *available.targets)
    if "precision" in knobs and load_target(chosen.target).precision != "int8" and not settings.quantize.is_named:
        found[PRECISION] = _others(PRECISION, settings.quantize.precision)
    return found


def _others(place: str, current: str) -> tuple[str, ...]:
    return ("", *(value for value in CHOICES[place] if value != current))


def _worth(settings: Settings) -> str:
    return "measured" if measures_worth(settings.prune) else "scatter"


def _is_possible(changes: Mapping[str, str], settings: Settings) -> bool:
    """A criterion that does not compare classes needs the measured worth, which has no temperature."""
    scatter = changes.get(WORTH, _worth(settings)) == "scatter"
    class_blind = changes.get(CRITERION, settings.prune.criterion) == "obs"
    return not (class_blind and scatter) and (scatter or TEMPERATURE not in changes)


def with_branches_removed(changes: Mapping[str, str]) -> dict[str, str] | None:
    """``changes``, but whole residual branches may be removed; None if that is so already."""
    if changes.get(DEPTH) != NO_DEPTH:
        return None
    return {place: value for place, value in changes.items() if place != DEPTH}


def with_budget(changes: Mapping[str, str], settings: Settings, available: Available) -> dict[str, str]:
    """``changes`` and, if they change the target, the budget that is the same latency there."""
    if TARGET not in changes or not isinstance(budget := settings.prune.budget, Budgets):
        return dict(changes)
    return {BUDGET: str(at_equal_latency(budget, available.targets[changes[TARGET]])), **changes}
