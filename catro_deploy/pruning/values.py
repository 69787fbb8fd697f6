"""The widths that an allocation may choose from, and what each of them is worth."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from catro_deploy.catro.gains import GroupChoice, GroupValue
from catro_deploy.pruning.scoring import Scored
from catro_deploy.pruning.selection import values_of
from catro_deploy.reconstruction.reconstructor import Reconstructor
from catro_deploy.reconstruction.worth import Losses
from catro_deploy.records import Branch, Group
from catro_deploy.settings import PruneSettings

__all__ = ["all_widths", "efficient_widths", "full_widths", "values_by_loss", "values_for"]


def values_for(
    scored: Scored,
    candidates: Mapping[str, tuple[int, ...]],
    settings: PruneSettings,
    worths: Mapping[Branch, float],
    keeper: Reconstructor | None,
) -> list[GroupValue]:
    """What the ``candidates`` are worth: by class separation or, if ``scored`` has no scatters, by loss.

    The uniform allocation needs no worth; without scatters it is 0.
    """
    if scored.scatters or keeper is None:
        return values_of(scored, candidates, settings, worths)
    if settings.allocation == "uniform":
        choices = [GroupChoice(group.name, candidates[group.name], len(group.producers)) for group in scored.prunable]
        return [GroupValue(choice, np.zeros(len(choice.widths))) for choice in choices]
    branches = tuple(worths)
    return values_by_loss(scored, candidates, keeper.losses(candidates, branches), branches)


def values_by_loss(
    scored: Scored, candidates: Mapping[str, tuple[int, ...]], losses: Losses, branches: Sequence[Branch]
) -> list[GroupValue]:
    """What the ``candidates`` of each prunable group are worth: the loss, in nats, that they avoid.

    The reference is the loss at the smallest width or, for a group in a removable branch, the loss without the branch,
    split equally over the branch's groups. A width that loses more than that is worth nothing.
    """
    entry = {name: losses.branches[b.name] / len(b.groups) for b in branches for name in b.groups}
    values = []
    for group in scored.prunable:
        name, widths = group.name, candidates[group.name]
        lost = np.maximum.accumulate([losses.widths[name][width] for width in reversed(widths)])[::-1]
        spared = np.maximum(0, entry.get(name, lost[0]) - lost)
        if name in entry:
            widths, spared = (0, *widths), np.concatenate([[0.0], spared])
        values.append(GroupValue(GroupChoice(name, widths, len(group.producers)), spared))
    return values


def full_widths(scored: Scored) -> dict[str, int]:
    """The width of every prunable group before pruning."""
    return {group.name: group.width for group in scored.prunable}


def all_widths(scored: Scored, settings: PruneSettings) -> dict[str, tuple[int, ...]]:
    """Every width from d_min to the largest allowed, ``step`` apart; 1 apart if all groups keep the same share."""
    step = 1 if settings.allocation == "uniform" else settings.step
    bounds = {group.name: _bounds(group, settings) for group in scored.prunable}
    return {name: (*range(low, high, step), high) for name, (low, high) in bounds.items()}


def efficient_widths(
    scored: Scored, settings: PruneSettings, worth_having: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """The widths worth having that are allowed; if there are none, the largest allowed."""
    found = {}
    for group in scored.prunable:
        low, high = _bounds(group, settings)
        allowed = tuple(width for width in worth_having[group.name] if low <= width <= high)
        found[group.name] = allowed or (high,)
    return found


def _bounds(group: Group, settings: PruneSettings) -> tuple[int, int]:
    largest = max(1, math.floor(settings.max_width * group.width))
    return min(group.narrowest(settings.d_min), largest), largest
