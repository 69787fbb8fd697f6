"""Choose the channels that stay, cut the others out, and check that the cut network computes what it should."""

import copy
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import nn

from catro_deploy.allocation import Decision, Measure, by_flops, by_latency
from catro_deploy.data.base import Split, Subset
from catro_deploy.device.reach import measurable_here
from catro_deploy.errors import DataError, FaultError
from catro_deploy.graph.depth import branch_worths, drop_branches, find_branches
from catro_deploy.graph.features import Labelled
from catro_deploy.graph.surgery import apply_keeps_, keeps_of, masked, spread
from catro_deploy.graph.trace import Network, list_layers, trace
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.plans import save_plan
from catro_deploy.pricing import Pricing, estimated_pricing, measured_pricing, profile_of
from catro_deploy.profiling.trial import trial
from catro_deploy.progress import Progress
from catro_deploy.protocols import load_latency_protocol, load_profile_protocol
from catro_deploy.records import Branch, Budget, GroupPlan, Keep, LatencyPlan, Plan
from catro_deploy.runs import RunFolder
from catro_deploy.selection import Scored, choose_channels, score_channels
from catro_deploy.settings import Settings
from catro_deploy.stages.original import Original, open_original, use_of
from catro_deploy.targets import Target, load_target
from catro_deploy.training.augment import normalise
from catro_deploy.training.device import choose_device

__all__ = ["labelled_batches", "prune", "write_pruning"]

LARGEST_DEVIATION = 1e-4
# Candidates of the closed loop are timed by this protocol; the report's figures come from the bench.
TRIALS = "quick"


def prune(settings: Settings, run: RunFolder, progress: Progress) -> Plan:
    """Prune the checkpoint's network; write plan.json, original.safetensors and pruned.safetensors.

    The original keeps all its channels, but of its logits only those of the wanted classes.

    Raises:
        UsageError: settings, data, checkpoint or budget do not go together.
        MissedError: no network meets a budget of latency.
        NumericsError: a feature map is not finite, or a layer's channels are dead.
        FaultError: the pruned network does not compute what the masked original computes.
    """
    budget = Budget.parse(settings.prune.budget)
    target = load_target(settings.prune.target)
    original = open_original(settings)
    network = trace(original.model, original.input_shape, settings.prune.ignore)
    device = choose_device(settings.prune.device)
    batches = [(images.to(device), label) for images, label in _batches(original, settings)]
    scored = score_channels(original.model.to(device), network, batches, settings.prune, progress)
    if budget.unit == "flops":
        decision, branches = by_flops(network, scored, budget, settings.prune), {}
    else:
        branches = _branches(original, network, scored, batches, settings)
        decision = _by_latency(original, network, scored, branches, budget, target, settings, progress)

    gone = [branch for branch in branches if not any(decision.widths[name] for name in branch.groups)]
    shallow, rest = _without(original.model.cpu(), network, gone)
    if gone and any(decision.widths.get(group.name) for group in rest.groups):
        scored = score_channels(shallow.to(device), rest, batches, settings.prune, progress)
    groups = choose_channels(shallow.to(device), rest, scored, decision.widths, batches, settings.prune, progress)
    images = batches[0][0].cpu()
    return write_pruning(settings, original, decision.latency, gone, groups, images, run, allocation=decision.method)


def write_pruning(
    settings: Settings,
    original: Original,
    latency: LatencyPlan | None,
    gone: Sequence[Branch],
    groups: Sequence[GroupPlan],
    images: torch.Tensor,
    run: RunFolder,
    *,
    allocation: str = "",
) -> Plan:
    """Cut ``original`` to what ``groups`` keep, without the branches ``gone``; check it on ``images``; write it down.

    ``allocation`` is the method that was used, if it is not what ``settings`` say.

    Raises:
        FaultError: the pruned network does not compute what the masked original computes.
    """
    model = original.model.cpu()
    network = trace(model, original.input_shape, settings.prune.ignore)
    shallow, rest = _without(model, network, gone)
    keeps = keeps_of(rest.groups, {group.name: group.kept for group in groups}, rest.sizes)
    pruned = apply_keeps_(copy.deepcopy(shallow), keeps)
    _check_equal(pruned, masked(shallow, keeps), images)
    method = allocation or settings.prune.allocation
    plan = _plan(settings, original, method, latency, gone, groups, keeps, pruned)
    save_weights(model, run.original_weights)
    save_weights(pruned, run.pruned_weights)
    save_plan(plan, run.plan)
    return plan


def _branches(
    original: Original, network: Network, scored: Scored, batches: Sequence[Labelled], settings: Settings
) -> dict[Branch, float]:
    """The residual branches that may vanish, and what each is worth."""
    if settings.prune.depth == "never" or settings.prune.allocation in ("flops", "uniform"):
        return {}
    prunable = {group.name for group in scored.prunable}
    found = find_branches(original.model, network, settings.prune.ignore)
    branches = [branch for branch in found if prunable.issuperset(branch.groups)]
    worths = branch_worths(original.model, branches, batches)
    return {branch: worths[branch.name] for branch in branches}


def _by_latency(
    original: Original,
    network: Network,
    scored: Scored,
    branches: Mapping[Branch, float],
    budget: Budget,
    target: Target,
    settings: Settings,
    progress: Progress,
) -> Decision:
    use, opset, shape = use_of(target, settings), settings.export.opset, original.input_shape
    on_cpu = copy.deepcopy(original.model).cpu()

    def decide(pricing: Pricing, measure: Measure | None) -> Decision:
        return by_latency(network, scored, branches, budget, settings.prune, pricing, measure, progress)

    if not measurable_here(target):
        return decide(estimated_pricing(network, scored.prunable, target, use.batch, settings.prune.d_min), None)
    protocol = load_profile_protocol(settings.profile.protocol)
    profile = profile_of(on_cpu, shape, use, protocol, progress, opset=opset)
    with trial(on_cpu, shape, use, load_latency_protocol(TRIALS), opset) as trials:
        return decide(
            measured_pricing(network, scored.prunable, profile),
            lambda widths: trials.measure(_of_widths(on_cpu, network, branches, widths)),
        )


def _without(model: nn.Module, network: Network, gone: Sequence[Branch]) -> tuple[nn.Module, Network]:
    """``model`` and ``network`` after the branches ``gone`` have vanished."""
    if not gone:
        return model, network
    shallow = drop_branches(model, [branch.name for branch in gone])
    return shallow.eval(), network.without({module for branch in gone for module in branch.modules})


def _of_widths(model: nn.Module, network: Network, branches: Iterable[Branch], widths: Mapping[str, int]) -> nn.Module:
    """A network of these widths, whichever channels it keeps: its latency does not depend on that."""
    gone = [branch for branch in branches if not any(widths[name] for name in branch.groups)]
    shallow, rest = _without(model, network, gone)
    kept = {group.name: spread(group, widths[group.name]) for group in rest.groups if group.name in widths}
    return apply_keeps_(copy.deepcopy(shallow), keeps_of(rest.groups, kept, rest.sizes))


def labelled_batches(
    split: Split, names: Sequence[str], per_class: int, batch_size: int, seed: int
) -> list[tuple[torch.Tensor, int]]:
    """Draw ``per_class`` uint8 images of each class (fewer where there are fewer), in batches of one class each.

    Raises:
        DataError: a class has fewer than two images.
    """
    generator = np.random.default_rng(seed)
    batches = []
    for label, name in enumerate(names):
        mine = np.flatnonzero(split.labels == label)
        if len(mine) < 2:
            raise DataError(
                f"The class {name} has {len(mine)} image(s) for training, those held out for validation not counted; "
                "scatter within a class needs at least 2.",
                "Add images of it, or leave it out of --classes.",
            )
        drawn = np.sort(generator.permutation(mine)[:per_class])
        pieces = np.array_split(drawn, -(-len(drawn) // batch_size))
        batches += [(split.images(piece), label) for piece in pieces]
    return batches


def _batches(original: Original, settings: Settings) -> list[Labelled]:
    names = [original.dataset.classes[index] for index in original.wanted]
    chosen = settings.prune
    drawn = labelled_batches(
        Subset(original.dataset.train, original.wanted), names, chosen.samples_per_class, chosen.batch_size, chosen.seed
    )
    return [(normalise(images, settings.model.mean, settings.model.std), label) for images, label in drawn]


def _check_equal(pruned: nn.Module, reference: nn.Module, images: torch.Tensor) -> None:
    with torch.inference_mode():
        expected, found = reference.eval()(images), pruned.eval()(images)
    deviation = float((expected - found).abs().max() / expected.abs().max().clamp(min=1e-12))
    if not deviation <= LARGEST_DEVIATION:
        raise FaultError(
            f"The pruned network deviates from the masked original by {deviation:.2g} of the largest logit "
            f"(at most {LARGEST_DEVIATION:.0e} is rounding): its channels were coupled wrongly.",
            "Nothing was written. Leave the part that is built unusually as it is: [prune] ignore in catro.toml.",
        )


def _plan(
    settings: Settings,
    original: Original,
    allocation: str,
    latency: LatencyPlan | None,
    gone: Sequence[Branch],
    groups: Sequence[GroupPlan],
    keeps: Mapping[str, Keep],
    pruned: nn.Module,
) -> Plan:
    head, wanted, classes = original.head, original.wanted, original.dataset.classes
    kept_by_head = keeps.get(head, Keep()).inputs
    with_head = {} if original.has_whole_head else {head: Keep(wanted, kept_by_head)}
    networks = (original.model, pruned)
    macs = [sum(layer.macs for layer in list_layers(network, original.input_shape)) for network in networks]
    params = [sum(p.numel() for p in network.parameters()) for network in networks]
    return Plan(
        model=settings.model.name,
        model_classes=len(classes),
        input_shape=original.input_shape,
        mean=settings.model.mean,
        std=settings.model.std,
        classes=tuple(classes[index] for index in wanted),
        class_indices=wanted,
        head=head,
        target=settings.prune.target,
        budget=str(Budget.parse(settings.prune.budget)),
        criterion=settings.prune.criterion,
        allocation=allocation,
        groups=tuple(groups),
        keeps={**keeps, **with_head},
        original_macs=macs[0],
        pruned_macs=macs[1],
        original_params=params[0],
        pruned_params=params[1],
        settings=settings.prune.model_dump(mode="json"),
        dropped=tuple(branch.name for branch in gone),
        latency=latency,
    )
