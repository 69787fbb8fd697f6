"""torch-pruning's pruner under our budgets: its criteria, our measurement, fine-tuning and run folder."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.timed_widths import TimedWidths, meets
from catro_deploy import networks
from catro_deploy.calibration import load_latency_protocol
from catro_deploy.errors import MissedError
from catro_deploy.graph.coupling.macs import count_macs
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.latency.candidate import CandidateLatency, CandidateTimer, candidate_timer
from catro_deploy.pruning.cutting import Cut
from catro_deploy.records import GroupPlan, Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.stages.original import Original, open_original
from catro_deploy.stages.prune import pruning_batches, write_pruning
from catro_deploy.targets import load_target
from catro_deploy.transports.execution import use_of

__all__ = [
    "gentlest_cut",
    "measured_ratio",
    "open_timer",
    "prune_by_peer",
    "prune_to_widths",
    "write_groups",
]

# A network, and what it keeps of each group.
Candidate = tuple[nn.Module, tuple[GroupPlan, ...]]


# Step between the strengths that are tried: they include ratios at which widths become multiples of powers of two.
STEP = 1 / 32
# Networks that keep more of the multiply-accumulates than this multiple of a budget's share are not timed.
MOST_MACS = 1.25
# Number of images, over all classes, whose squared gradients an importance by the Hessian gets.
HESSIAN_IMAGES = 256


class Gentlest(NamedTuple):
    """What the gentlest cut that meets a budget keeps of each group, and its multiply-accumulates per image."""

    groups: tuple[GroupPlan, ...]
    macs: int


def prune_by_peer(
    settings: Settings,
    run: RunFolder,
    round_to: Sequence[int | None],
    timed: TimedWidths,
    importance: str = "MagnitudeImportance",
) -> Plan:
    """Prune by torch-pruning's ``importance`` with one ratio for all layers, the smallest that meets the budget.

    Widths are multiples of the number in ``round_to`` (None: any) that keeps the most multiply-accumulates: where odd
    widths are slow, they need far stronger cuts to meet a budget than round ones.

    Raises:
        MissedError: no ratio meets the budget.
    """
    original = open_original(settings)
    network = trace(original.model, original.input_shape)
    needed = needs_gradients(importance)
    gradients = gradients_of(original.model, importance, pruning_batches(original, settings)) if needed else ()

    found, missed = [], []
    for multiple in round_to:
        cut_by = partial(
            peer_network, original.model, network, round_to=multiple, importance=importance, gradients=gradients
        )
        try:
            found.append(gentlest_cut(original, settings, cut_by, timed, most=0.95))
        except MissedError as error:
            missed.append(error)
    if not found:
        raise missed[0]
    return write_groups(settings, original, max(found, key=lambda one: one.macs).groups, run)


def gentlest_cut(
    original: Original,
    settings: Settings,
    cut_by: Callable[[float], Candidate | None],
    timed: TimedWidths,
    most: float,
) -> Gentlest:
    """What the gentlest cut that meets the budget keeps; strengths up to ``most`` are tried one after the other.

    Latency does not decrease monotonically with the strength, so that a binary search would skip round widths.
    ``cut_by`` returns None if no cut is as strong.

    Raises:
        MissedError: no cut meets the budget.
    """
    budget = settings.prune.given_budget
    whole = count_macs(original.model, original.input_shape)
    fastest = 1.0
    with open_timer(original, settings, "quick") as quick, open_timer(original, settings, "standard") as standard:
        timers = {"quick": quick, "standard": standard}
        for step in range(1, int(most / STEP) + 1):
            candidate = cut_by(step * STEP)
            if candidate is None:
                break
            macs = count_macs(candidate[0], original.input_shape)
            if budget.is_share and macs > MOST_MACS * budget.amount * whole:
                continue
            measure = partial(measure_by, timers, candidate[0])
            candidate_us, original_us = timed.latencies_us(candidate[1], measure, budget)
            if meets(budget, candidate_us, original_us):
                return Gentlest(candidate[1], macs)
            fastest = min(fastest, candidate_us / original_us)
    raise MissedError(f"not met: {fastest:.2f}x at best")


def measure_by(timers: Mapping[str, CandidateTimer], network: nn.Module, protocol: str) -> CandidateLatency:
    """Time ``network`` by the timer of ``protocol``."""
    return timers[protocol].measure(network)


def prune_to_widths(settings: Settings, run: RunFolder, importance: str, widths: Mapping[str, int]) -> Plan:
    """Prune by torch-pruning's ``importance``; each group keeps the number of channels in ``widths``."""
    original = open_original(settings)
    network = trace(original.model, original.input_shape)
    # Ratios that are half a channel too low: torch-pruning rounds the number of kept channels down.
    ratios = {
        layer: 1 - (widths[group.name] + 0.5) / group.width
        for group in network.groups
        if widths[group.name] < group.width
        for layer in group.producers
    }
    _, groups = peer_network(original.model, network, 0.0, None, importance, ratios)
    assert {group.name: len(group.kept) for group in groups} == dict(widths)
    return write_groups(settings, original, groups, run)


def write_groups(settings: Settings, original: Original, groups: Sequence[GroupPlan], run: RunFolder) -> Plan:
    """Cut ``original`` to what ``groups`` keep, and write the result to ``run``."""
    images, _ = pruning_batches(original, settings)[0]
    return write_pruning(settings, original, Cut(groups), images, run)


def peer_network(
    model: nn.Module,
    network: Network,
    ratio: float,
    round_to: int | None,
    importance: str = "MagnitudeImportance",
    ratios: Mapping[str, float] | None = None,
    gradients: Sequence[torch.Tensor] = (),
) -> Candidate:
    """``model`` cut by torch-pruning, and what it keeps of each group; ``ratios`` overrides ``ratio`` for some layers.

    Importances that use gradients read ``gradients``, one for each parameter. A random importance draws the same
    numbers each time.
    """
    import torch_pruning

    options = {"p": 1} if importance == "MagnitudeImportance" else {}
    cut = copy.deepcopy(model)
    pruner = torch_pruning.pruner.BasePruner(
        cut,
        torch.zeros(1, *network.input_shape),
        importance=getattr(torch_pruning.importance, importance)(**options),
        pruning_ratio=ratio,
        pruning_ratio_dict={cut.get_submodule(layer): own for layer, own in (ratios or {}).items()},
        ignored_layers=[cut.get_submodule(network.head)],
        round_to=round_to,
    )
    if gradients:
        for parameter, gradient in zip(cut.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        pruner.step()
    return cut.eval(), _kept_groups(network, pruner.pruning_history())


def _kept_groups(network: Network, history: Iterable[tuple[str, bool, Sequence[int]]]) -> tuple[GroupPlan, ...]:
    gone: dict[str, set[int]] = {group.name: set() for group in network.groups}
    for module, is_out, indices in history:
        for group in network.groups:
            for slot in group.slots:
                if slot.module == module and slot.axis == ("out" if is_out else "in"):
                    channel = dict(zip(slot.index, slot.channel, strict=True))
                    gone[group.name] |= {channel[index] for index in indices if index in channel}
    return tuple(
        GroupPlan(g.name, g.width, tuple(c for c in range(g.width) if c not in gone[g.name]), g.producers)
        for g in network.groups
    )


def needs_gradients(importance: str) -> bool:
    """Whether torch-pruning's ``importance`` uses gradients."""
    return "Taylor" in importance or "Hessian" in importance


def gradients_of(model: nn.Module, importance: str, batches: Sequence[Labelled]) -> list[torch.Tensor]:
    """Gradients of the cross entropy of ``batches`` for each parameter of ``model``, as used by ``importance``."""
    return squared_gradients(model, batches) if "Hessian" in importance else summed_gradients(model, batches)


def summed_gradients(model: nn.Module, batches: Sequence[Labelled]) -> list[torch.Tensor]:
    """Sum of the gradients of ``batches``; the gradient of a batch is the mean over its images."""
    parameters = list(model.parameters())
    sums = [torch.zeros_like(one) for one in parameters]
    for images, label in batches:
        loss = nn.functional.cross_entropy(model(images), torch.full((len(images),), label))
        for total, gradient in zip(sums, torch.autograd.grad(loss, parameters), strict=True):
            total += gradient
    return sums


def squared_gradients(model: nn.Module, batches: Sequence[Labelled]) -> list[torch.Tensor]:
    """Mean of the squared gradients of single images: the Fisher approximation of the Hessian's diagonal.

    ``GroupHessianImportance`` reads it from the gradients. Its own ``accumulate_grad`` keeps only those of the last
    image (1.6.1: it looks up names among parameters).
    """
    each = max(1, HESSIAN_IMAGES // max(1, len(batches)))
    single = [(image, label) for images, label in batches for image in images[:each].split(1)]
    parameters = list(model.parameters())
    squares = [torch.zeros_like(one) for one in parameters]
    for image, label in single:
        loss = nn.functional.cross_entropy(model(image), torch.tensor([label]))
        for square, gradient in zip(squares, torch.autograd.grad(loss, parameters), strict=True):
            square += gradient.square()
    return [square / len(single) for square in squares]


def measured_ratio(settings: Settings, run: RunFolder) -> dict[str, Any]:
    """The latency of the pruned network in ``run`` as a share of the original's, measured here, and its interval."""
    original = open_original(settings)
    with open_timer(original, settings, "standard") as timer:
        result = timer.measure(networks.load(run, weights="pruned"))
    return {"latency_ratio": result.speedup.ratio, "latency_ratio_ci95": list(result.speedup.ratio_ci95)}


@contextmanager
def open_timer(original: Original, settings: Settings, protocol: str) -> Iterator[CandidateTimer]:
    """Time candidates against the original of ``settings``."""
    use = use_of(load_target(settings.prune.target), settings)
    limits = load_latency_protocol(protocol)
    with candidate_timer(original.model, original.input_shape, use, limits, settings.export.opset) as timer:
        yield timer
