"""Scores of channels on labelled samples, what widths are worth by them, and the channels that stay.

1. One pass over the samples gives the scatter of every layer. Members of a group add up, each divided by its own mean
   total scatter first, so that a layer of large activations does not drown the others. Where several channels of a
   member belong to one channel of the group, as in grouped convolutions, they add up before that.
2. What a width is worth follows from the scatters (Algorithm 2's gains); allocation.py makes widths of it.
3. Algorithm 1 picks the channels, group by group in the order of execution, each on inputs that are pruned already. A
   group with several producers is decided at its first; the later ones count with their scatter in the whole network.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from catro_deploy.catro.gains import GroupChoice, GroupValue, group_value
from catro_deploy.catro.scatter import Scatter
from catro_deploy.catro.trace_ratio import Selection, select, usable
from catro_deploy.errors import BudgetError, NumericsError
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.graph.fx.features import FeatureGraph, Labelled
from catro_deploy.graph.fx.sequential import select_in_order
from catro_deploy.progress import Progress
from catro_deploy.reconstruction.reconstructor import Reconstructor
from catro_deploy.records import Branch, Group, GroupPlan, Slot
from catro_deploy.settings import PruneSettings

__all__ = ["Scored", "choose_channels", "chosen_by_readers", "score_channels", "survey_groups", "values_of"]

MOST_REASONS = 6
"""How many groups an error tells the reasons of."""


@dataclass(frozen=True)
class Scored:
    """The groups that may be pruned, with their scatters; those that stay, with the reason; each producer's scatter."""

    prunable: tuple[Group, ...]
    scatters: Mapping[str, Scatter]
    fixed: Mapping[str, str]
    producers: Mapping[str, Scatter]

    def keeping(self, before: "Scored") -> "Scored":
        """The same, but the groups that had to stay ``before`` stay: no widths were chosen for them.

        One may be found prunable again, where a branch that made it constant is gone.
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
    """Score the channels of every group of ``network`` that ``settings`` allow to prune.

    ``batches`` are normalised images on the model's device, class by class. A group that never changes within a class
    gives no ground to choose on, and stays.

    Raises:
        BudgetError: no group may be pruned.
        NumericsError: a feature map is not finite, or all groups are dead.
    """
    fixed = {group.name: _reason_to_fix(group, network, settings) for group in network.groups}
    prunable = tuple(group for group in network.groups if not fixed[group.name])
    if not prunable:
        raise _none_left(fixed)
    graph = _graph(model, network, prunable)
    fixed |= {group.name: _why_hidden(group, graph) for group in prunable}
    prunable = tuple(group for group in prunable if not fixed[group.name])
    if not prunable:
        raise _none_left(fixed)
    with progress.task("Scoring channels", len(batches)) as task:
        alone = graph.scatters(_told(batches, task.advance))
    scatters: dict[str, Scatter] = {}
    dead: NumericsError | None = None
    for group in prunable:
        try:
            scatters[group.name] = usable(group.name, _group_scatter(group, alone), settings.ridge)
        except NumericsError as error:
            fixed[group.name], dead = error.problem, dead or error
    if dead and not scatters:
        raise dead
    return Scored(tuple(group for group in prunable if group.name in scatters), scatters, fixed, alone)


def survey_groups(network: Network, follows: Callable[[Group], bool], settings: PruneSettings) -> Scored:
    """The groups of ``network`` that may be pruned without looking at labels: those whose readers can be followed.

    Raises:
        BudgetError: no group may be pruned.
    """
    fixed = {group.name: _reason_to_fix(group, network, settings) for group in network.groups}
    for group in network.groups:
        if not fixed[group.name] and not follows(group):
            fixed[group.name] = "what reads its channels cannot be followed"
    prunable = tuple(group for group in network.groups if not fixed[group.name])
    if not prunable:
        raise _none_left(fixed)
    return Scored(prunable, {}, fixed, {})


def chosen_by_readers(
    network: Network, scored: Scored, keeper: Reconstructor, widths: Mapping[str, int]
) -> dict[str, GroupPlan]:
    """For groups of ``network``, so many channels as ``widths`` says: those that what reads them can least do without.

    Groups whose readers cannot be followed are left out, unless they keep all channels.
    """
    plans = {}
    for group in network.groups:
        width = widths.get(group.name, group.width)
        kept = tuple(range(group.width)) if width == group.width else keeper.kept(group, width)
        if kept is not None:
            fixed = scored.fixed[group.name]
            plans[group.name] = GroupPlan(group.name, group.width, kept, group.producers, fixed=fixed)
    return plans


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
            if group.name in chosen and scored.scatters
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


def _none_left(fixed: Mapping[str, str]) -> BudgetError:
    """The error that every group must stay, with some of the reasons."""
    reasons = list(dict.fromkeys(f"{name}: {reason}" for name, reason in fixed.items()))
    told = "".join(f"\n{reason}" for reason in reasons[:MOST_REASONS])
    more = f"\n... and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
    return BudgetError(
        f"No channels of this network may be pruned:{told}{more}",
        "Look at ignore and d_min in [prune]; control flow that depends on the data belongs into a submodule without "
        "convolutions.",
    )


def _graph(model: nn.Module, network: Network, groups: Sequence[Group], sizes: Collection[str] = ()) -> FeatureGraph:
    present = dict(model.named_modules())  # of a network without some branches, what is to be ignored may be gone
    ignore = [name for name in network.ignore if name in present]
    return FeatureGraph(model, [producer for group in groups for producer in group.producers], ignore, sizes)


def _why_hidden(group: Group, graph: FeatureGraph) -> str:
    return next((graph.hidden[producer] for producer in group.producers if producer in graph.hidden), "")


def _group_scatter(group: Group, by_producer: Mapping[str, Scatter]) -> Scatter:
    between, within = np.zeros(group.width), np.zeros(group.width)
    for slot in _members(group):
        member = by_producer[slot.module]
        index = np.array(slot.index)
        part = Scatter(
            _by_channel(group, slot, member.between[index]), _by_channel(group, slot, member.within[index])
        ).normalised()
        between += part.between
        within += part.within
    return Scatter(between, within)


def _members(group: Group) -> list[Slot]:
    return [slot for slot in group.slots if slot.axis == "out" and slot.module in group.producers]


def _by_channel(group: Group, slot: Slot, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the ``values`` of a slot's indices for each channel of the group."""
    sums: NDArray[np.float64] = np.zeros(group.width)
    np.add.at(sums, np.array(slot.channel), values)
    return sums


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
        try:
            scatter = usable(group.name, _group_scatter(group, members), settings.ridge)
        except NumericsError:  # what was pruned before has silenced it: the whole network knows more
            scatter = scored.scatters[group.name]
        seed = settings.seed + network.groups.index(group)
        best = select(scatter, widths[group.name], seed=seed, epsilon=settings.epsilon)
        chosen[group.name] = best
        return best.kept

    limit = MemoryLimit(int(settings.activation_memory * 2**30))
    narrowed = [group for group in prunable if widths[group.name] < group.width]
    graph = _graph(model, network, prunable, network.sizes)
    select_in_order(graph, narrowed, network.sizes, batches, decide, limit, progress)
    return chosen


def _largest_norms(model: nn.Module, group: Group, width: int) -> Selection:
    """Channels whose filters have the largest L1 norms, added over the group's producers (Li et al., 2017)."""
    norms: NDArray[np.float64] = np.zeros(group.width)
    for slot in _members(group):
        norms += _by_channel(group, slot, _filter_norms(model.get_submodule(slot.module))[np.array(slot.index)])
    kept = sorted(int(channel) for channel in np.argsort(-norms, kind="stable")[:width])
    return Selection(tuple(kept), math.nan, 0)


def _filter_norms(module: nn.Module) -> NDArray[np.float64]:
    """L1 norm of what makes each output channel of a convolution or linear layer."""
    weight = torch.as_tensor(module.weight).detach().abs().double().cpu()
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        # (in, out / groups, ...), the inputs group by group.
        by_group = weight.reshape(module.groups, -1, *weight.shape[1:]).flatten(3).sum((1, 3))
        return np.asarray(by_group.flatten())
    return np.asarray(weight.flatten(1).sum(1))


def _told(batches: Sequence[Labelled], advance: Callable[[], None]) -> Iterator[Labelled]:
    for batch in batches:
        yield batch
        advance()


def _finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None
