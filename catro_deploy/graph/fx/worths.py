"""What residual branches are worth: how much each adds to the class separation of its stream."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import fx, nn

from catro_deploy.catro.scatter import Scatter
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.fx.depth import Operand, named_operands
from catro_deploy.graph.fx.features import FeatureGraph, Labelled, channelwise_after
from catro_deploy.graph.tracing.symbolic import symbolic
from catro_deploy.records import Branch

__all__ = ["branch_worths"]

LARGEST_RATIO = 1e12


def branch_worths(
    model: nn.Module, network: Network, branches: Sequence[Branch], batches: Iterator[Labelled] | Sequence[Labelled]
) -> dict[str, float]:
    """What each branch adds to the class separation of its stream, in nats, in one pass over ``batches``.

    ``branches`` are of ``model``, traced as ``network``. The stream after the addition and the channelwise activation
    that follows is compared with the same activation of the other operand alone, the stream without the branch::

        worth = max(0, log(ratio with the branch) - log(ratio without it)),   ratio = sum(between) / sum(within)

    over all channels, without ridge. The unit is that of the gains of channels: a relative increase of class
    separation (d log ratio), so that both can be added up. A branch that adds nothing, or only blurs, is worth 0.

    Raises:
        ModelError: the forward cannot be traced, or a branch is not in it.
        NumericsError: a feature map is not finite.
        DataError: fewer than two classes.
    """
    if not branches:
        return {}
    module = symbolic(model, network.ignore, (), network.input_shape).module.eval()
    modules = dict(module.named_modules())
    probes = {}
    for place, operand in enumerate(named_operands(module.graph, modules, [branch.name for branch in branches])):
        probes[branches[place].name] = _probe_(module, operand, modules, f"branch{place}")
    module.recompile()
    inserted = [probe for pair in probes.values() for probe in pair]
    scatters = FeatureGraph(module, inserted, network.ignore, (), network.input_shape).scatters(batches)
    return {
        name: max(0.0, _log_ratio(scatters[after]) - _log_ratio(scatters[before]))
        for name, (before, after) in probes.items()
    }


def _probe_(module: fx.GraphModule, operand: Operand, modules: dict[str, nn.Module], name: str) -> tuple[str, str]:
    """Insert identities that see the stream without the branch and with it; return their names."""
    before, after = f"{name}_before", f"{name}_after"
    graph, addition = module.graph, operand.addition
    activations = channelwise_after(addition, modules)
    for probe in (before, after):
        module.add_module(probe, nn.Identity())
    with graph.inserting_before(addition):
        # A copy, since an activation may overwrite its input.
        without = {addition: graph.call_module(before, (graph.call_function(torch.clone, (operand.other,)),))}
        for node in activations:
            without[node] = graph.node_copy(node, lambda source: without.get(source, source))
    with graph.inserting_after(addition):
        through = graph.call_module(after, (addition,))
    addition.replace_all_uses_with(through, delete_user_cb=lambda user: user is not through)
    return before, after


def _log_ratio(scatter: Scatter) -> float:
    """Logarithm of the trace ratio of all channels, bounded so that it is finite for a dead or a perfect stream."""
    between, within = float(scatter.between.sum()), float(scatter.within.sum())
    ratio = between / within if within > 0 else (LARGEST_RATIO if between > 0 else 0.0)
    return math.log(min(max(ratio, 1 / LARGEST_RATIO), LARGEST_RATIO))
