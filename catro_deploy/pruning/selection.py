"""The worth of widths by the scatters of groups, and the channels to keep.

The worth of a width follows from the scatters (Algorithm 2's gains); allocation.py chooses widths by it. Algorithm 1
selects the channels, group by group in the order of execution, each on inputs that are already pruned. A group with
several producers is decided at its first; the later ones count with their scatter in the whole network.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from catro_deploy.catro.gains import GroupChoice, GroupValue, group_value
from catro_deploy.catro.scatter import Scatter
from catro_deploy.catro.trace_ratio import Selection, select, usable
from catro_deploy.errors import NumericsError
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.graph.fx.sequential import select_in_order
from catro_deploy.progress import Progress
from catro_deploy.pruning.scoring import Scored, by_channel, feature_graph, group_scatter, members
from catro_deploy.reconstruction.reconstructor import Reconstructor
from catro_deploy.records import Branch, Group, GroupPlan
from catro_deploy.settings import PruneSettings

__all__ = ["choose_channels", "chosen_by_readers", "values_of"]


def chosen_by_readers(
    network: Network, scored: Scored, keeper: Reconstructor, widths: Mapping[str, int]
) -> dict[str, GroupPlan]:
    """For groups of ``network``, the channels that consumers can least reconstruct; ``widths`` gives their number.

    Groups whose consumers cannot be followed are omitted, unless they keep all channels.
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
    """The worth of the ``candidates`` of each prunable group; for groups in removable branches width 0 comes first.

    The worth of a branch in ``worths`` (in the unit of the gains) is split equally over its groups, as their gain from
    width 0.
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
    """Decide which channels each group of ``network`` keeps; ``widths`` gives their number.

    Raises:
        NumericsError: a feature map is not finite, or a layer's channels cannot be ranked.
    """
    prunable = _prunable(network, scored)
    if settings.criterion == "l1":
        chosen = {group.name: _largest_norms(model, group, widths[group.name]) for group in prunable}
    else:
        chosen = _select_in_order(model, network, scored, widths, batches, settings, progress)
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


def _prunable(network: Network, scored: Scored) -> list[Group]:
    """The groups of ``network`` that may be pruned; fewer than were scored if branches are removed."""
    return [group for group in network.groups if not scored.fixed[group.name]]


def _select_in_order(
    model: nn.Module,
    network: Network,
    scored: Scored,
    widths: Mapping[str, int],
    batches: Sequence[Labelled],
    settings: PruneSettings,
    progress: Progress,
) -> dict[str, Selection]:
    chosen: dict[str, Selection] = {}
    prunable = _prunable(network, scored)

    def decide(group: Group, first: Scatter) -> tuple[int, ...]:
        members = {**scored.producers, group.producers[0]: first}
        try:
            scatter = usable(group.name, group_scatter(group, members), settings.ridge)
        except NumericsError:  # earlier pruning made it constant: use its scatter in the whole network
            scatter = scored.scatters[group.name]
        seed = settings.seed + network.groups.index(group)
        best = select(scatter, widths[group.name], seed=seed, epsilon=settings.epsilon)
        chosen[group.name] = best
        return best.kept

    limit = MemoryLimit(int(settings.activation_memory * 2**30))
    narrowed = [group for group in prunable if widths[group.name] < group.width]
    graph = feature_graph(model, network, prunable, network.sizes)
    select_in_order(graph, narrowed, network.sizes, batches, decide, limit, progress)
    return chosen


def _largest_norms(model: nn.Module, group: Group, width: int) -> Selection:
    """Channels whose filters have the largest L1 norms, added over the group's producers (Li et al., 2017)."""
    norms: NDArray[np.float64] = np.zeros(group.width)
    for slot in members(group):
        norms += by_channel(group, slot, _filter_norms(model.get_submodule(slot.module))[np.array(slot.index)])
    kept = sorted(int(channel) for channel in np.argsort(-norms, kind="stable")[:width])
    return Selection(tuple(kept), math.nan, 0)


def _filter_norms(module: nn.Module) -> NDArray[np.float64]:
    """L1 norm of the weights of each output channel of a convolution or linear layer."""
    weight = torch.as_tensor(module.weight).detach().abs().double().cpu()
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        # (in, out / groups, ...), the inputs group by group.
        by_group = weight.reshape(module.groups, -1, *weight.shape[1:]).flatten(3).sum((1, 3))
        return np.asarray(by_group.flatten())
    return np.asarray(weight.flatten(1).sum(1))


def _finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None
