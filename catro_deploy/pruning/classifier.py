"""Pruning a classifier that is at hand: from images to a cut network and the plan of it.

The command line's stage opens a checkpoint and a dataset for it, the Python API a module and a loader of the caller's.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from catro_deploy.calibration import load_latency_protocol, load_profile_protocol
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.fx.depth import branch_worths, find_branches
from catro_deploy.graph.fx.features import Labelled, images_at_once
from catro_deploy.latency.candidate import trial
from catro_deploy.latency.pricing import Pricing, estimated_pricing, measured_pricing, profile_of
from catro_deploy.progress import Progress
from catro_deploy.pruning.allocation import Decision, Measure, by_flops, by_latency
from catro_deploy.pruning.cutting import Classifier, Pruned, cut_classifier, of_widths, without_branches
from catro_deploy.pruning.selection import Scored, choose_channels, chosen_by_readers, score_channels, survey_groups
from catro_deploy.pruning.solvers import measures_worth
from catro_deploy.reconstruction.reconstructor import Reconstructor
from catro_deploy.records import Branch, Budget, GroupPlan, Keep
from catro_deploy.settings import PruneSettings, Settings
from catro_deploy.targets import Target, load_target
from catro_deploy.training.device import choose_device
from catro_deploy.transports.execution import use_of
from catro_deploy.transports.reach import profilable, reachable

__all__ = ["prune_classifier", "scoring_batch_size"]

# Candidates of the closed loop are timed by this protocol; the report's figures come from the bench.
TRIALS = "quick"


def scoring_batch_size(original: Classifier, settings: PruneSettings) -> int:
    """Images in a batch that ``prune_classifier`` is given: ``batch_size`` on a GPU, on a CPU no more than run fast.

    Raises:
        SettingsError: a GPU is wanted and there is none.
        ModelError: the network fails on an image.
    """
    if choose_device(settings.compute).type != "cpu":
        return settings.batch_size
    return images_at_once(original.model, original.input_shape, settings.batch_size)


def prune_classifier(
    original: Classifier,
    batches: Sequence[Labelled],
    settings: Settings,
    progress: Progress,
    *,
    labelled: bool = True,
) -> Pruned:
    """Choose the channels of ``original`` that stay, by ``batches`` of normalised images, class by class, and cut it.

    Of ``settings`` count [prune], [profile], [bench] and [export]. If images are not ``labelled`` what widths are worth
    is always measured, and channels are chosen by what reads them or by norms; see ``require_pruning_without_labels``.

    Raises:
        UsageError: settings, network, images or budget do not go together.
        MissedError: no network meets a budget of latency.
        NumericsError: a feature map is not finite, or a layer's channels are dead.
        FaultError: the pruned network does not compute what the masked original computes.
    """
    chosen = settings.prune
    budget, target, device = Budget.parse(chosen.budget), load_target(chosen.target), choose_device(chosen.compute)
    network = trace(original.model, original.input_shape, chosen.ignore)
    if device.type != "cpu":  # batches that are made when they are read stay so: there may be many
        batches = [(images.to(device), label) for images, label in batches]
    keeper = None
    if chosen.reconstruct or chosen.criterion == "obs":
        images = _some_images(batches, chosen.reconstruct_images)
        keeper = Reconstructor(original.model.to(device), network, images, chosen, progress)
    if keeper is not None and (not labelled or (measures_worth(chosen, budget) and _can_measure(network, keeper))):
        scored = survey_groups(network, keeper.follows, chosen)
    else:
        scored = score_channels(original.model, network, batches, chosen, progress)
    branches = _branches(original.model, network, scored, batches, budget, chosen)
    if budget.unit == "flops":
        decision = by_flops(network, scored, budget, chosen, keeper)
    else:
        decision = _by_latency(original.model, network, scored, branches, budget, target, settings, progress, keeper)

    gone = [branch for branch in branches if not any(decision.widths[name] for name in branch.groups)]
    shallow, rest = without_branches(original.model.cpu(), network, gone, chosen.ignore)
    groups = _chosen(shallow, rest, scored, decision.widths, batches, chosen, progress, keeper)
    pruned = cut_classifier(
        original, decision.latency, gone, groups, batches[0][0].cpu(), settings, allocation=decision.method
    )
    pruned = replace(pruned, plan=replace(pruned.plan, search_path=decision.path))
    if keeper is None or not chosen.reconstruct:
        return pruned
    return _reconstructed(original, pruned, keeper, decision.loss)


def _can_measure(network: Network, keeper: Reconstructor) -> bool:
    """Whether worth can be measured for most channels; the groups for which it cannot would keep all of theirs."""
    free = [group for group in network.groups if not group.fixed]
    mostly = 2 * sum(group.width for group in free if keeper.follows(group)) >= sum(group.width for group in free)
    if not mostly:
        keeper.progress.note("worth cannot be measured for most channels: class separation (scatter) is used instead")
    return mostly


def _chosen(
    shallow: nn.Module,
    rest: Network,
    scored: Scored,
    widths: Mapping[str, int],
    batches: Sequence[Labelled],
    settings: PruneSettings,
    progress: Progress,
    keeper: Reconstructor | None,
) -> list[GroupPlan]:
    """The channels that stay of what is left of the network: by what reads them where that can be followed."""
    by_readers = {}
    if keeper is not None and settings.criterion != "l1":
        by_readers = chosen_by_readers(rest, scored, keeper, widths)
    if all(group.name in by_readers for group in rest.groups):
        return list(by_readers.values())
    model = shallow.to(choose_device(settings.compute))
    some_gone = not all(widths.values())
    if scored.scatters and some_gone and any(widths.get(group.name) for group in rest.groups):
        scored = score_channels(model, rest, batches, settings, progress).keeping(scored)
    groups = choose_channels(model, rest, scored, widths, batches, settings, progress)
    return [by_readers.get(group.name, group) for group in groups]


def _reconstructed(original: Classifier, pruned: Pruned, keeper: Reconstructor, loss_predicted: float | None) -> Pruned:
    keeps = dict(pruned.plan.keeps)
    if not original.has_whole_head:  # the head of what is at hand makes the logits of the wanted classes alone already
        keeps[original.head] = Keep(None, keeps[original.head].inputs)
    model, record = keeper.reconstructed(pruned.model, keeps, pruned.plan.dropped)
    record = replace(record, loss_predicted=loss_predicted)
    return Pruned(model, replace(pruned.plan, reconstruction=record))


def _some_images(batches: Sequence[Labelled], count: int) -> list[torch.Tensor]:
    """About ``count`` of the images of ``batches``, evenly from all, in batches of mixed classes."""
    each = max(1, round(count / len(batches)))
    pieces = [images[:each] for images, _ in batches]
    mixed = torch.cat(pieces)[torch.randperm(sum(map(len, pieces)), generator=torch.Generator().manual_seed(0))]
    return list(torch.split(mixed[:count], len(batches[0][0])))


def _branches(
    model: nn.Module,
    network: Network,
    scored: Scored,
    batches: Sequence[Labelled],
    budget: Budget,
    settings: PruneSettings,
) -> dict[Branch, float]:
    """The residual branches that may go; what each is worth by class separation, where widths are judged by that."""
    if budget.unit == "flops" or settings.depth == "never" or settings.allocation in ("flops", "uniform"):
        return {}
    prunable = {group.name for group in scored.prunable}
    found = find_branches(model, network, settings.ignore)
    branches = [branch for branch in found if prunable.issuperset(branch.groups)]
    if not scored.scatters:
        return dict.fromkeys(branches, 0.0)
    worths = branch_worths(model, branches, batches, settings.ignore)
    return {branch: worths[branch.name] for branch in branches}


def _by_latency(
    model: nn.Module,
    network: Network,
    scored: Scored,
    branches: Mapping[Branch, float],
    budget: Budget,
    target: Target,
    settings: Settings,
    progress: Progress,
    keeper: Reconstructor | None,
) -> Decision:
    use, opset, shape = use_of(target, settings), settings.export.opset, network.input_shape
    on_cpu = copy.deepcopy(model).cpu()

    def decide(pricing: Pricing, measure: Measure | None) -> Decision:
        return by_latency(network, scored, branches, budget, settings.prune, pricing, measure, progress, keeper)

    there = reachable(target, settings.prune.device)
    if there and profilable(target):
        protocol = load_profile_protocol(settings.profile.protocol)
        profile = profile_of(on_cpu, shape, use, protocol, progress, opset=opset)
        pricing = measured_pricing(network, scored.prunable, profile)
    else:
        least = settings.prune.d_min
        pricing = estimated_pricing(network, scored.prunable, target, use, least, measured=there)
    if not there:
        return decide(pricing, None)
    with trial(on_cpu, shape, use, load_latency_protocol(TRIALS), opset) as trials:
        if use.precision != use.own_precision:
            # The pricing knows the unpruned network in the new precision; budgets are shares of what it is now.
            pricing = replace(pricing, original_us=pricing.original_us / trials.measure(on_cpu).ratio)
        return decide(
            pricing,
            lambda widths: trials.measure(of_widths(on_cpu, network, branches, widths, settings.prune.ignore)),
        )
