"""Scores of channels on labelled samples, what widths are worth by them, and the channels that stay.

1. One pass over the samples gives the scatter of every layer. Members of a group add up, each divided by its own mean
   total scatter first, so that a layer of large activations does not drown the others.
2. What a width is worth follows from the scatters (Algorithm 2's gains); allocation.py makes widths of it.
3. Algorithm 1 picks the channels, group by group in the order of execution, each on inputs that are pruned already. A
   group with several producers is decided at its first; the later ones count with their scatter in the whole network.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from catro_deploy.core.allocate import GroupChoice, GroupValue, group_value
from catro_deploy.core.scatter import Scatter
from catro_deploy.core.trace_ratio import Selection, scores, select, trace_ratio, usable
from catro_deploy.errors import BudgetError
from catro_deploy.graph.activations import MemoryLimit
from catro_deploy.graph.features import FeatureGraph, Labelled
from catro_deploy.graph.trace import Network
from catro_deploy.progress import Progress
from catro_deploy.records import Branch, Group, GroupPlan
from catro_deploy.settings import PruneSettings

__all__ = ["Scored", "choose_channels", "score_channels", "values_of"]


@dataclass(frozen=True)
class Scored:
    """The groups that may be pruned, with their scatters; those that stay, with the reason; each producer's scatter."""

    prunable: tuple[Group, ...]
    scatters: Mapping[str, Scatter]
    fixed: Mapping[str, str]
    producers: Mapping[str, Scatter]


def score_channels(
    model: nn.Module,
    network: Network,
    batches: Sequence[Labelled],
    settings: PruneSettings,
    progress: Progress,
) -> Scored:
    """Score the channels of every group of ``network`` that ``settings`` allow to prune.

    ``batches`` are normalised images on the model's device, class by class.

    Raises:
        BudgetError: no group may be pruned.
        NumericsError: a feature map is not finite, or a layer gives no ground to choose on.
    """
    fixed = {group.name: _reason_to_fix(group, network, settings) for group in network.groups}
    prunable = tuple(group for group in network.groups if not fixed[group.name])
    if not prunable:
        raise BudgetError("No channels of this network may be pruned.", "Look at ignore and d_min in [prune].")
    graph = FeatureGraph(model, [producer for group in prunable for producer in group.producers])
    with progress.task("Scoring channels", len(batches)) as task:
        alone = graph.scatters(_told(batches, task.advance))
    scatters = {group.name: usable(group.name, _group_scatter(group, alone), settings.ridge) for group in prunable}
    return Scored(prunable, scatters, fixed, alone)


def values_of(
    scored: Scored,
    candidates: Mapping[str, tuple[int, ...]],
    settings: PruneSettings,
    worths: Mapping[Branch, float] | None = None,
) -> list[GroupValue]:
    """What the ``candidates`` of each prunable group are worth; 0 comes before those of a branch that may vanish.

    What a branch in ``worths`` is worth (in the unit of the gains) is what its groups gain together when they come into
    being, each an equal part of it.
    """
    entry = {name: worth / len(branch.groups) for branch, worth in (worths or {}).items() for name in branch.groups}
    values = []
    for group in scored.prunable:
        widths = ((0,) if group.name in entry else ()) + candidates[group.name]
        choice = GroupChoice(group.name, widths, len(group.producers))
        value = group_value(
            choice,
            scored.scatters[group.name],
            step=settings.step,
            temperature=settings.temperature,
            epsilon=settings.epsilon,
        )
        if group.name in entry:
            there = np.arange(len(widths)) > 0
            value = replace(value, value=value.value + entry[group.name] * there)
        values.append(value)
    return values


def choose_channels(
    model: nn.Module,
    network: Network,
    scored: Scored,
    widths: Mapping[str, int],
    batches: Sequence[Labelled],
    settings: PruneSettings,
    progress: Progress,
) -> list[GroupPlan]:
    """Decide which channels each group of ``network`` keeps, so many as ``widths`` says.

    Raises:
        NumericsError: a feature map is not finite, or a layer gives no ground to choose on.
    """
    prunable = [group for group in network.groups if not scored.fixed[group.name]]
    if settings.criterion == "l1":
        chosen = {group.name: _largest_norms(model, group, widths[group.name]) for group in prunable}
    else:
        chosen = _select_in_order(model, network, prunable, widths, batches, scored, settings, progress)
    return [
        GroupPlan(
            name=group.name,
            width=group.width,
            kept=chosen[group.name].kept if group.name in chosen else tuple(range(group.width)),
            producers=group.producers,
            trace_ratio=_finite(chosen[group.name].ratio) if group.name in chosen else None,
            rounds=chosen[group.name].rounds if group.name in chosen else None,
            scale=float(np.mean([scored.producers[p].mean_total for p in group.producers]))
            if group.name in chosen
            else None,
            fixed=scored.fixed[group.name],
        )
        for group in network.groups
    ]


def _reason_to_fix(group: Group, network: Network, settings: PruneSettings) -> str:
    if group.fixed:
        return group.fixed
    if not settings.prune_first and network.layers[0].name in group.producers:
        return "the first convolution is not to be pruned"
    return f"not wider than d_min = {settings.d_min}" if group.width <= settings.d_min else ""


def _group_scatter(group: Group, by_producer: Mapping[str, Scatter]) -> Scatter:
    between, within = np.zeros(group.width), np.zeros(group.width)
    for slot in group.slots:
        if slot.axis == "out" and slot.module in group.producers:
            member = by_producer[slot.module].normalised()
            index, channel = np.array(slot.index), np.array(slot.channel)
            np.add.at(between, channel, member.between[index])
            np.add.at(within, channel, member.within[index])
    return Scatter(between, within)


def _select_in_order(
    model: nn.Module,
    network: Network,
    prunable: Sequence[Group],
    widths: Mapping[str, int],
    batches: Sequence[Labelled],
    scored: Scored,
    settings: PruneSettings,
    progress: Progress,
) -> dict[str, Selection]:
    chosen: dict[str, Selection] = {}

    def decide(group: Group, first: Scatter) -> tuple[int, ...]:
        members = {**scored.producers, group.producers[0]: first}
        scatter = usable(group.name, _group_scatter(group, members), settings.ridge)
        seed = settings.seed + network.groups.index(group)
        best = select(scatter, widths[group.name], seed=seed, epsilon=settings.epsilon)
        kept = _one_of_each_member(group, best.kept, scores(scatter, best.ratio, 1.0))
        chosen[group.name] = replace(best, kept=kept, ratio=trace_ratio(scatter, np.array(kept)))
        return kept

    limit = MemoryLimit(int(settings.activation_memory * 2**30))
    narrowed = [group for group in prunable if widths[group.name] < group.width]
    graph = FeatureGraph(model, [producer for group in prunable for producer in group.producers])
    graph.select_in_order(narrowed, network.sizes, batches, decide, limit, progress)
    return chosen


def _largest_norms(model: nn.Module, group: Group, width: int) -> Selection:
    """Channels whose filters have the largest L1 norms, added over the group's producers (Li et al., 2017)."""
    norms: NDArray[np.float64] = np.zeros(group.width)
    for slot in group.slots:
        if slot.axis == "out" and slot.module in group.producers:
            weight = model.get_parameter(f"{slot.module}.weight").detach()
            norm = weight.abs().flatten(1).sum(1).double().cpu().numpy()
            np.add.at(norms, np.array(slot.channel), norm[np.array(slot.index)])
    kept = tuple(int(channel) for channel in np.argsort(-norms, kind="stable")[:width])
    return Selection(_one_of_each_member(group, kept, norms), math.nan, 0)


def _one_of_each_member(group: Group, kept: Sequence[int], worth: NDArray[np.float64]) -> tuple[int, ...]:
    """``kept``, changed so that no module of the group is left without channels where it has only a part of them."""
    chosen = set(kept)
    parts = [set(slot.channel) for slot in group.slots]
    for part in parts:
        if not part & chosen:
            spare = [c for c in chosen if all(len(other & chosen) > 1 for other in parts if c in other)]
            if spare:
                chosen.remove(min(spare, key=lambda channel: worth[channel]))
            chosen.add(max(part, key=lambda channel: worth[channel]))
    return tuple(sorted(chosen))


def _told(batches: Sequence[Labelled], advance: Callable[[], None]) -> Iterator[Labelled]:
    for batch in batches:
        yield batch
        advance()


def _finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None
