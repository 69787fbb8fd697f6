"""Cutting a classifier to the chosen channels: the cut network, its check, and its plan."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import nn

from catro_deploy.errors import FaultError, ModelError, SettingsError
from catro_deploy.graph.coupling.layers import whole_stride
from catro_deploy.graph.coupling.macs import count_macs
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.cut.sizes import stored_sizes
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, masked
from catro_deploy.graph.fx.depth import drop_branches
from catro_deploy.graph.resizing import resizing
from catro_deploy.latency.template import keeps_at
from catro_deploy.models.huggingface import architecture_of
from catro_deploy.records import Branch, BudgetPlan, Group, GroupPlan, Keep, LatencyPlan, Plan
from catro_deploy.settings import Settings
from catro_deploy.settings.sides import size_text

__all__ = [
    "Classifier",
    "Cut",
    "Pruned",
    "at_input_size",
    "cut_classifier",
    "of_widths",
    "removed_branches",
    "with_classes",
    "without_branches",
]

LARGEST_DEVIATION = 1e-4


@dataclass(frozen=True)
class Classifier:
    """A trained network on the CPU in eval mode, with the logits of the wanted classes only.

    Attributes:
        model: maps normalised images (n, *input_shape) to logits (n, wanted classes).
        input_shape: (channels, height, width) of one image.
        head: name of the layer that computes the logits.
        classes: names of all classes that the network was trained for.
        wanted: indices of the remaining classes, in the order of the logits.
        name: factory that builds the network with all classes; empty if there is none.
        mean: what images were normalised with, one value per channel; empty if not known.
        std: likewise.
        resized_to: height and width to which ``model`` resizes its images; None if it does not.
        unresized: the network without resizing, if ``model`` resizes; else None.
    """

    model: nn.Module
    input_shape: tuple[int, int, int]
    head: str
    classes: tuple[str, ...]
    wanted: tuple[int, ...]
    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resized_to: tuple[int, int] | None = field(default=None, kw_only=True)
    unresized: nn.Module | None = field(default=None, kw_only=True)

    @property
    def has_whole_head(self) -> bool:
        """Whether the logits are those of all classes, in the order of ``classes``."""
        return self.wanted == tuple(range(len(self.classes)))

    @property
    def as_given(self) -> nn.Module:
        """The network that does not resize its images: budgets are shares of what it needs."""
        return self.unresized or self.model


@dataclass(frozen=True)
class Cut:
    """The decisions about a network before it is cut.

    Attributes:
        groups: the channels that each group keeps; those of removed branches may be left out.
        gone: the residual branches that are removed.
        allocation: the method that chose the widths; empty: the one in the settings.
        latency: how the widths follow from latency; None if the budget counts multiply-accumulates.
        search_path: Algorithm 2's steps with such a budget: a group and the width that it grows to.
        budgets: what the network uses of each budget.
        latency_on: how the widths follow from latency on further targets.
    """

    groups: Sequence[GroupPlan]
    gone: Sequence[Branch] = ()
    allocation: str = ""
    latency: LatencyPlan | None = None
    search_path: tuple[tuple[str, int], ...] = ()
    budgets: tuple[BudgetPlan, ...] = ()
    latency_on: Mapping[str, LatencyPlan] = field(default_factory=dict)


@dataclass(frozen=True)
class Pruned:
    """The cut network, on the CPU in eval mode, and what is needed besides weights to rebuild it."""

    model: nn.Module
    plan: Plan


_AnyClassifier = TypeVar("_AnyClassifier", bound=Classifier)


def with_classes(whole: _AnyClassifier, wanted: tuple[int, ...], images: torch.Tensor) -> _AnyClassifier:
    """``whole`` with only the logits of the ``wanted`` classes, in that order.

    Its module is cut in place, and checked on ``images``.

    Raises:
        ModelError: the logits are not the outputs of one layer.
    """
    chosen = replace(whole, wanted=wanted)
    if chosen.has_whole_head:
        return chosen
    with torch.no_grad():
        try:
            expected = whole.model(images)[:, list(wanted)]
            found = apply_keeps_(whole.model, {whole.head: Keep(out=wanted)})(images)
            deviation = _deviation(expected.nan_to_num(), found.nan_to_num())  # non-finite values are reported later
        except (
            ModelError,
            RuntimeError,
            IndexError,
        ):  # the layer has fewer outputs, or what follows it needs all of them
            deviation = float("inf")
    if not deviation <= LARGEST_DEVIATION:
        raise ModelError(
            "Logits cannot be left out of this network or reordered: they are not the outputs of one layer "
            f"({whole.head} is the last).",
            "Prune it for all classes, or let it end in a layer with one output for each class.",
        )
    return chosen


def at_input_size(whole: _AnyClassifier, size: tuple[int, int] | None) -> _AnyClassifier:
    """``whole`` with a network that resizes its images to ``size`` (height, width); None: ``whole`` as it is.

    Raises:
        SettingsError: images would be enlarged, or the network cannot take images of this size, or they are smaller
            than its stride, so that they do not fill one position of its last feature map.
    """
    channels, *own = whole.input_shape
    if size is None or size == tuple(own):
        return whole
    if size[0] > own[0] or size[1] > own[1]:
        raise SettingsError(
            f"input_size = {size_text(size)} is larger than the images, which are {size_text((own[0], own[1]))}.",
            "Choose a smaller size: enlarging images costs time and adds no detail.",
        )
    try:
        with torch.no_grad():
            whole.model(torch.zeros(1, channels, *size, device=next(whole.model.parameters()).device))
    except Exception as error:  # whatever a user's forward may raise
        raise SettingsError(
            f"The network fails on images of {size_text(size)}: {type(error).__name__}: {error}",
            "Choose another input_size, or leave it out: some networks accept only one image size.",
        ) from error
    stride = whole_stride(whole.model, whole.input_shape)
    if min(size) < stride:
        raise SettingsError(
            f"input_size = {size_text(size)} is smaller than the network's stride, {stride}.",
            f"Choose at least {stride}, or leave input_size out.",
        )
    return replace(whole, model=resizing(whole.model, size), resized_to=size, unresized=whole.model)


def cut_classifier(
    original: Classifier, network: Network, cut: Cut, images: torch.Tensor, settings: Settings
) -> Pruned:
    """Cut ``original``, traced as ``network``, according to ``cut``, and check the result on ``images``.

    Raises:
        FaultError: the pruned network does not compute what the masked original computes.
    """
    model = original.model.cpu()
    shallow, rest = without_branches(model, network, cut.gone)
    keeps = keeps_of(rest.groups, {group.name: group.kept for group in cut.groups}, rest.sizes)
    pruned = apply_keeps_(copy.deepcopy(shallow), keeps)
    _check_equal(pruned, masked(shallow, keeps), images)
    with_removed = replace(cut, groups=_with_removed(network.groups, cut.groups))
    return Pruned(pruned, _plan(original, with_removed, keeps, pruned, settings))


def _with_removed(all_groups: Iterable[Group], groups: Sequence[GroupPlan]) -> list[GroupPlan]:
    """``groups``, and those removed with their branch, which keep nothing, in the order of ``all_groups``."""
    left = {group.name: group for group in groups}
    return [left.get(group.name) or GroupPlan(group.name, group.width, (), group.producers) for group in all_groups]


def without_branches(model: nn.Module, network: Network, gone: Sequence[Branch]) -> tuple[nn.Module, Network]:
    """``model`` and ``network`` without the branches ``gone``."""
    if not gone:
        return model, network
    shallow = drop_branches(model, [branch.name for branch in gone], network.ignore, network.sizes, network.input_shape)
    unread = stored_sizes(model, network.sizes).keys() - stored_sizes(shallow, network.sizes).keys()
    return shallow.eval(), network.without(unread.union(*(branch.modules for branch in gone)))


def of_widths(
    model: nn.Module,
    network: Network,
    branches: Iterable[Branch],
    widths: Mapping[str, int],
) -> nn.Module:
    """A network of these widths with arbitrary channels: its latency does not depend on which ones."""
    shallow, rest = without_branches(model, network, removed_branches(branches, widths))
    return apply_keeps_(copy.deepcopy(shallow), keeps_at(rest, widths))


def removed_branches(branches: Iterable[Branch], widths: Mapping[str, int]) -> list[Branch]:
    """Those of ``branches`` that keep no channels."""
    return [branch for branch in branches if not any(widths[name] for name in branch.groups)]


def _check_equal(pruned: nn.Module, reference: nn.Module, images: torch.Tensor) -> None:
    """Require that both compute the same: in float32 or, if many layers amplify its rounding errors, in float64."""
    deviation = _deviation_between(pruned.eval(), reference.eval(), images)
    if not deviation <= LARGEST_DEVIATION:
        with suppress(RuntimeError):  # not every network runs in float64
            exact, expected = copy.deepcopy(pruned).double(), copy.deepcopy(reference).double()
            deviation = _deviation_between(exact, expected, images.double())
    if not deviation <= LARGEST_DEVIATION:
        raise FaultError(
            f"The pruned network deviates from the masked original by {deviation:.2g} of the largest logit "
            f"(at most {LARGEST_DEVIATION:.0e} is rounding): its channels were coupled wrongly.",
            "Nothing was written. Exclude the unusual part: [prune] ignore in catro.toml.",
        )


def _deviation_between(found: nn.Module, expected: nn.Module, images: torch.Tensor) -> float:
    with torch.inference_mode():
        return _deviation(expected(images), found(images))


def _deviation(expected: torch.Tensor, found: torch.Tensor) -> float:
    """The largest difference, as a share of the largest logit."""
    return float((expected - found).abs().max() / expected.abs().max().clamp(min=1e-12))


def _plan(original: Classifier, cut: Cut, keeps: Mapping[str, Keep], pruned: nn.Module, settings: Settings) -> Plan:
    head, wanted, classes = original.head, original.wanted, original.classes
    with_head = {} if original.has_whole_head else {head: Keep(wanted, keeps.get(head, Keep()).inputs)}
    networks = (original.as_given, pruned)
    macs = [count_macs(network, original.input_shape) for network in networks]
    params = [sum(p.numel() for p in network.parameters()) for network in networks]
    return Plan(
        model=original.name,
        model_classes=len(classes),
        input_shape=original.input_shape,
        mean=original.mean,
        std=original.std,
        classes=tuple(classes[index] for index in wanted),
        class_indices=wanted,
        head=head,
        target=settings.prune.target,
        budget=str(settings.prune.given_budget),
        criterion=settings.prune.criterion,
        allocation=cut.allocation or settings.prune.allocation,
        groups=tuple(cut.groups),
        keeps={**keeps, **with_head},
        original_macs=macs[0],
        pruned_macs=macs[1],
        original_params=params[0],
        pruned_params=params[1],
        settings=settings.prune.model_dump(mode="json"),
        dropped=tuple(branch.name for branch in cut.gone),
        latency=cut.latency,
        search_path=cut.search_path,
        architecture=architecture_of(original.model),
        budgets=cut.budgets,
        latency_on=dict(cut.latency_on),
        resized_to=original.resized_to,
    )
