"""From a traced network and labelled samples to the channels that stay: scores, widths, selection in order.

1. One pass over the samples gives the scatter of every layer. Members of a group add up, each divided by its own mean
   total scatter first, so that a layer of large activations does not drown the others.
2. Algorithm 2 (or one share for all) turns the budget into a width for every group.
3. Algorithm 1 picks the channels, group by group in the order of execution, each on inputs that are pruned already. A
   group with several producers is decided at its first; the later ones count with their scatter in the whole network.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from catro_deploy.core.allocate import GroupChoice, greedy, log_gains, uniform
from catro_deploy.core.scatter import Scatter
from catro_deploy.core.trace_ratio import Selection, scores, select, trace_ratio, usable
from catro_deploy.costs.flops import FlopsCost
from catro_deploy.errors import BudgetError
from catro_deploy.graph.activations import MemoryLimit
from catro_deploy.graph.features import FeatureGraph, Labelled
from catro_deploy.graph.trace import Network
from catro_deploy.progress import Progress
from catro_deploy.records import Budget, Group, GroupPlan
from catro_deploy.settings import PruneSettings

__all__ = ["choose_channels"]


def choose_channels(
    model: nn.Module,
    network: Network,
    batches: Sequence[Labelled],
    budget: Budget,
    settings: PruneSettings,
    progress: Progress,
) -> list[GroupPlan]:
    """Decide what each group of ``network`` keeps.

    ``batches`` are normalised images on the model's device, class by class.

    Raises:
        BudgetError: no network within the bounds of ``settings`` meets ``budget``.
        NumericsError: a feature map is not finite, or a layer gives no ground to choose on.
    """
    fixed = {group.name: _reason_to_fix(group, network, settings) for group in network.groups}
    prunable = [group for group in network.groups if not fixed[group.name]]
    if not prunable:
        raise BudgetError("No channels of this network may be pruned.", "Look at ignore and d_min in [prune].")
    graph = FeatureGraph(model, [producer for group in prunable for producer in group.producers])
    with progress.task("Scoring channels", len(batches)) as task:
        alone = graph.scatters(_told(batches, task.advance))
    scatters = {group.name: usable(group.name, _group_scatter(group, alone), settings.ridge) for group in prunable}
    widths = _allocate(network, prunable, scatters, budget, settings)
    if settings.criterion == "l1":
        chosen = {group.name: _largest_norms(model, group, widths[group.name]) for group in prunable}
    else:
        chosen = _select_in_order(graph, network, prunable, widths, batches, alone, settings, progress)
    return [
        GroupPlan(
            name=group.name,
            width=group.width,
            kept=chosen[group.name].kept if group.name in chosen else tuple(range(group.width)),
            producers=group.producers,
            trace_ratio=_finite(chosen[group.name].ratio) if group.name in chosen else None,
            rounds=chosen[group.name].rounds if group.name in chosen else None,
            scale=float(np.mean([alone[p].mean_total for p in group.producers])) if group.name in scatters else None,
            fixed=fixed[group.name],
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


def _allocate(
    network: Network,
    prunable: Sequence[Group],
    scatters: Mapping[str, Scatter],
    budget: Budget,
    settings: PruneSettings,
) -> dict[str, int]:
    choices = []
    for group in prunable:
        largest = max(1, math.floor(settings.max_width * group.width))
        choices.append(GroupChoice(group.name, min(settings.d_min, largest), largest, len(group.producers)))
    cost = FlopsCost(network.layers, prunable)
    whole = sum(layer.macs for layer in network.layers)
    limit = budget.fraction * whole
    least = cost.predict({choice.name: choice.smallest for choice in choices})
    if least > limit:
        raise BudgetError(
            f"The budget {budget} is below the smallest network of these settings, which needs "
            f"{math.ceil(least / whole * 1e4) / 100:g}%flops.",
            "Allow that much (--budget), or fewer channels per group (--d-min), or pruning of the first convolution.",
        )
    if settings.allocation == "uniform":
        return uniform(choices, {group.name: group.width for group in prunable}, cost, limit)
    gains = [
        log_gains(
            choice,
            scatters[choice.name],
            step=settings.step,
            temperature=settings.temperature,
            epsilon=settings.epsilon,
        )
        for choice in choices
    ]
    return greedy(gains, cost, limit, step=settings.step)


def _select_in_order(
    graph: FeatureGraph,
    network: Network,
    prunable: Sequence[Group],
    widths: Mapping[str, int],
    batches: Sequence[Labelled],
    alone: Mapping[str, Scatter],
    settings: PruneSettings,
    progress: Progress,
) -> dict[str, Selection]:
    chosen: dict[str, Selection] = {}

    def decide(group: Group, first: Scatter) -> tuple[int, ...]:
        scatter = usable(group.name, _group_scatter(group, {**alone, group.producers[0]: first}), settings.ridge)
        seed = settings.seed + network.groups.index(group)
        best = select(scatter, widths[group.name], seed=seed, epsilon=settings.epsilon)
        kept = _one_of_each_member(group, best.kept, scores(scatter, best.ratio, 1.0))
        chosen[group.name] = replace(best, kept=kept, ratio=trace_ratio(scatter, np.array(kept)))
        return kept

    limit = MemoryLimit(int(settings.activation_memory * 2**30))
    narrowed = [group for group in prunable if widths[group.name] < group.width]
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
