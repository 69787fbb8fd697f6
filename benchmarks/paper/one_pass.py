"""Channels chosen all at once by the unpruned network's feature maps; Algorithm 1 proceeds layer by layer."""

from catro_deploy.catro.trace_ratio import select
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.progress import Silent
from catro_deploy.pruning.allocation import by_flops
from catro_deploy.pruning.cutting import Cut
from catro_deploy.pruning.scoring import score_channels
from catro_deploy.pruning.solvers import Problem
from catro_deploy.records import GroupPlan, Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import pruning_batches, write_pruning

__all__ = ["prune_in_one_pass"]


def prune_in_one_pass(settings: Settings, run: RunFolder) -> Plan:
    """Prune to a budget of multiply-accumulates: the widths of ``prune``, but no layer sees the cuts of the others."""
    chosen, original = settings.prune, open_original(settings)
    batches = pruning_batches(original, settings)
    network = trace(original.model, original.input_shape, chosen.ignore)
    scored = score_channels(original.model, network, batches, chosen, Silent())
    widths = by_flops(Problem(network, scored, chosen)).widths
    groups = []
    for group in network.groups:
        kept = tuple(range(group.width))
        if group.name in scored.scatters:
            scatter = scored.scatters[group.name]
            kept = select(scatter, widths[group.name], seed=chosen.seed, epsilon=chosen.epsilon).kept
        groups.append(GroupPlan(group.name, group.width, kept, group.producers, fixed=scored.fixed[group.name]))
    return write_pruning(settings, original, Cut(groups), batches[0][0], run)
