"""The variants of a pruning: combinations of settings that may meet the same budget with different losses."""

import itertools
from collections.abc import Mapping

from catro_deploy.pruning.solvers import measures_worth
from catro_deploy.records.variants import CHOICES
from catro_deploy.settings import Settings
from catro_deploy.targets import load_target

__all__ = ["DEPTH", "NO_DEPTH", "ways"]

CRITERION, WORTH, DEPTH, PRECISION = CHOICES
NO_DEPTH = "never"


def ways(settings: Settings, *, labelled: bool) -> list[dict[str, str]]:
    """The settings that each variant changes, as ``section.key``; the first one changes none.

    Criteria that compare classes, and their class separation, need images that are ``labelled``.
    """
    alternatives = _alternatives(settings, labelled)
    found = []
    for values in itertools.product(*alternatives.values()):
        changes = {place: value for place, value in zip(alternatives, values, strict=True) if value}
        if _is_possible(changes, settings):
            found.append(changes)
    return sorted(found, key=len)


def _alternatives(settings: Settings, labelled: bool) -> Mapping[str, tuple[str, ...]]:
    """For each setting that may change, its values: an empty one leaves it as it is."""
    chosen, knobs = settings.prune, settings.search.knobs
    found: dict[str, tuple[str, ...]] = {}
    if "criterion" in knobs and labelled and chosen.reconstruct:
        found[CRITERION] = _others(CRITERION, chosen.criterion)
    if "worth" in knobs and labelled and chosen.reconstruct:
        found[WORTH] = _others(WORTH, "measured" if measures_worth(chosen) else "scatter")
    if "depth" in knobs:
        found[DEPTH] = _others(DEPTH, chosen.depth)
    if "precision" in knobs and load_target(chosen.target).precision != "int8" and not settings.quantize.is_named:
        found[PRECISION] = _others(PRECISION, settings.quantize.precision)
    return found


def _others(place: str, current: str) -> tuple[str, ...]:
    return ("", *(value for value in CHOICES[place] if value != current))


def _is_possible(changes: Mapping[str, str], settings: Settings) -> bool:
    """A criterion that compares no classes needs the measured worth."""
    worth = changes.get(WORTH, settings.prune.worth)
    return not (changes.get(CRITERION, settings.prune.criterion) == "obs" and worth == "scatter")
