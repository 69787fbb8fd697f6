"""Scores of channels on labelled samples: the scatter of every group, in one pass.

The members of a group are summed, each divided by its own mean total scatter first, so that a layer with large
activations does not dominate the others. If several channels of a member belong to one channel of the group, as in
grouped convolutions, they are summed first.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from catro_deploy.catro.scatter import Scatter
from catro_deploy.catro.trace_ratio import usable
from catro_deploy.errors import BudgetError, NumericsError
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.fx.features import FeatureGraph, Labelled
from catro_deploy.progress import Progress
from catro_deploy.records import Group, Slot
from catro_deploy.settings import PruneSettings

__all__ = ["Scored", "by_channel", "feature_graph", "group_scatter", "members", "score_channels", "survey_groups"]

MOST_REASONS = 6
"""How many groups' reasons an error lists."""


@dataclass(frozen=True)
class Scored:
    """The groups that may be pruned, with their scatters; those that stay, with the reason; each producer's scatter."""

    prunable: tuple[Group, ...]
    scatters: Mapping[str, Scatter]
    fixed: Mapping[str, str]
    producers: Mapping[str, Scatter]

    def keeping(self, before: "Scored") -> "Scored":
        """A copy in which groups that were fixed ``before`` stay fixed, since no widths were chosen for them.

        Such a group may appear prunable again if a branch that made it constant is removed.
        """
        fixed = {name: before.fixed[name] or reason for name, reason in self.fixed.items()}
        prunable = tuple(group for group in self.prunable if not fixed[group.name])
        return replace(self, prunable=prunable, fixed=fixed)


def score_channels(
    model: nn.Module,
    network: Network,
    batches: Sequence[Labelled],
    settings: PruneSettings,
    progress: Progress,
) -> Scored:
    """Score the channels of every group of ``network`` that ``settings`` allow pruning.

    ``batches`` are normalised images on the model's device, class by class. A group that never varies within a class
    cannot be scored, and keeps its channels.

    Raises:
        BudgetError: no group may be pruned.
        NumericsError: a feature map is not finite, or all groups are dead.
    """
    fixed = {group.name: _reason_to_fix(group, network, settings) for group in network.groups}
    prunable = tuple(group for group in network.groups if not fixed[group.name])
    if not prunable:
        raise _none_left(fixed)
    graph = feature_graph(model, network, prunable)
    fixed |= {group.name: _why_hidden(group, graph) for group in prunable}
    prunable = tuple(group for group in prunable if not fixed[group.name])
    if not prunable:
        raise _none_left(fixed)
    with progress.task("Scoring channels", len(batches)) as task:
        alone = graph.scatters(_advancing(batches, task.advance))
    scatters: dict[str, Scatter] = {}
    dead: NumericsError | None = None
    for group in prunable:
        try:
            scatters[group.name] = usable(group.name, group_scatter(group, alone), settings.ridge)
        except NumericsError as error:
            fixed[group.name], dead = error.problem, dead or error
    if dead and not scatters:
        raise dead
    return Scored(tuple(group for group in prunable if group.name in scatters), scatters, fixed, alone)


def survey_groups(network: Network, follows: Callable[[Group], bool], settings: PruneSettings) -> Scored:
    """The groups of ``network`` that may be pruned without labels: those whose consumers can be followed.

    Raises:
        BudgetError: no group may be pruned.
    """
    fixed = {group.name: _reason_to_fix(group, network, settings) for group in network.groups}
    for group in network.groups:
        if not fixed[group.name] and not follows(group):
            fixed[group.name] = "the consumers of its channels cannot be followed"
    prunable = tuple(group for group in network.groups if not fixed[group.name])
    if not prunable:
        raise _none_left(fixed)
    return Scored(prunable, {}, fixed, {})


def _reason_to_fix(group: Group, network: Network, settings: PruneSettings) -> str:
    if group.fixed:
        return group.fixed
    if not settings.prune_first and network.layers[0].name in group.producers:
        return "the first convolution is not to be pruned"
    return f"not wider than d_min = {settings.d_min}" if group.width <= group.narrowest(settings.d_min) else ""


def _none_left(fixed: Mapping[str, str]) -> BudgetError:
    """The error that no group may be pruned, with some of the reasons."""
    reasons = list(dict.fromkeys(f"{name}: {reason}" for name, reason in fixed.items()))
    listed = "".join(f"\n{reason}" for reason in reasons[:MOST_REASONS])
    more = f"\n... and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
    return BudgetError(
        f"No channels of this network may be pruned:{listed}{more}",
        "Check ignore and d_min in [prune]. A module that cannot be looked into keeps its channels: move what the "
        "reason names into a submodule without convolutions.",
    )


def feature_graph(
    model: nn.Module, network: Network, groups: Sequence[Group], sizes: Collection[str] = ()
) -> FeatureGraph:
    """The graph of ``model``, traced as ``network``, with the producers of ``groups``."""
    present = dict(model.named_modules())  # modules to ignore may have been removed with a branch
    ignore = [name for name in network.ignore if name in present]
    producers = [producer for group in groups for producer in group.producers]
    return FeatureGraph(model, producers, ignore, sizes, network.input_shape)


def _why_hidden(group: Group, graph: FeatureGraph) -> str:
    return next((graph.hidden[producer] for producer in group.producers if producer in graph.hidden), "")


def group_scatter(group: Group, by_producer: Mapping[str, Scatter]) -> Scatter:
    """The scatter of each channel of ``group``, combined from those of its producers."""
    between, within = np.zeros(group.width), np.zeros(group.width)
    for slot in members(group):
        member = by_producer[slot.module]
        index = np.array(slot.index)
        part = Scatter(
            by_channel(group, slot, member.between[index]), by_channel(group, slot, member.within[index])
        ).normalised()
        between += part.between
        within += part.within
    return Scatter(between, within)


def members(group: Group) -> list[Slot]:
    """The slots of the producers of ``group``."""
    return [slot for slot in group.slots if slot.axis == "out" and slot.module in group.producers]


def by_channel(group: Group, slot: Slot, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the ``values`` at a slot's indices for each channel of the group."""
    sums: NDArray[np.float64] = np.zeros(group.width)
    np.add.at(sums, np.array(slot.channel), values)
    return sums


def _advancing(batches: Sequence[Labelled], advance: Callable[[], None]) -> Iterator[Labelled]:
    for batch in batches:
        yield batch
        advance()
