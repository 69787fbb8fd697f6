"""Trial cuts of groups of channels: the cut model must run, and compute what the masked model computes."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.follower import tensors_in
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, masked, spread
from catro_deploy.graph.tracing.symbolic import evaluation_graph
from catro_deploy.graph.tracing.tracer import Number
from catro_deploy.records import Group, Keep

__all__ = ["stubborn"]

Cut = Mapping[Group, tuple[int, ...]]
"""Which channels each group keeps; groups that are not listed keep all."""
Trouble = Callable[[Cut], str]

LARGEST_DEVIATION = 1e-3
"""Largest deviation that counts as rounding, as a share of the largest logit, after cuts throughout a network."""


def stubborn(
    model: nn.Module,
    groups: Sequence[Group],
    sizes: Mapping[str, tuple[int, int]],
    input_shape: tuple[int, int, int],
) -> dict[str, str]:
    """Which of ``groups`` of ``model`` (eval mode) cannot lose channels, and why.

    Each group loses its own random number of channels, since a forward may rely on two groups having equal widths.
    Shapes are checked first, without computing values; then the numbers that the forward reads, which its graphs hold
    as constants; then the values.
    """
    draw = random.Random(0)
    narrow = {group: spread(group, draw.randint(1, group.width - 1)) for group in groups if group.width > 1}
    image = torch.randn((1, *input_shape), generator=torch.Generator().manual_seed(0))
    reasons: dict[str, str] = {}
    for trial in (_Shapes(model, sizes, image), _Numbers(model, sizes, input_shape), _Values(model, sizes, image)):
        reasons |= _refusals(
            trial.trouble, {group: kept for group, kept in narrow.items() if group.name not in reasons}
        )
    return reasons


def _refusals(trouble: Trouble, cut: Cut) -> dict[str, str]:
    """The smallest set of groups found whose exclusion removes all ``trouble``, each with its reason."""
    reasons = _culprits(trouble, cut)
    if not reasons or not trouble({group: kept for group, kept in cut.items() if group.name not in reasons}):
        return reasons
    willing: dict[Group, tuple[int, ...]] = {}
    for group, kept in cut.items():  # some fail only together with others: the first of those may be cut
        found = reasons.get(group.name) or trouble({**willing, group: kept})
        if found:
            reasons[group.name] = found
        else:
            willing[group] = kept
    return reasons


def _culprits(trouble: Trouble, cut: Cut) -> dict[str, str]:
    """Groups that fail alone, found by bisection; if two halves fail only together, the last group."""
    found = trouble(cut) if cut else ""
    if not found:
        return {}
    if len(cut) == 1:
        return {group.name: found for group in cut}
    several = list(cut.items())
    half = len(several) // 2
    parts = _culprits(trouble, dict(several[:half])) | _culprits(trouble, dict(several[half:]))
    return parts or {several[-1][0].name: found}


class _Shapes:
    """Runs cut copies of a model on tensors without values; a model that needs values is skipped."""

    def __init__(self, model: nn.Module, sizes: Mapping[str, tuple[int, int]], image: torch.Tensor) -> None:
        self._sizes, self._image = sizes, image.to("meta")
        self._model: nn.Module | None = copy.deepcopy(model).to("meta")
        try:
            with torch.no_grad():
                self._expected = _shapes(self._model(self._image))
        except Exception:  # whatever a forward that reads values raises
            self._model = None

    def trouble(self, cut: Cut) -> str:
        """What fails if groups keep only the channels in ``cut``; empty if nothing does."""
        if self._model is None:
            return ""
        try:
            with torch.no_grad():
                found = _shapes(_cut_model(self._model, cut, self._sizes)(self._image))
        except Exception as error:  # whatever the forward raises when sizes that it holds no longer fit
            return f"without some of them the forward fails: {str(error).splitlines()[0]}"
        return "" if found == self._expected else "without some of them the logits have another shape"


class _Numbers:
    """Traces cut copies of a model to check that the forward branches, loops and indexes as before.

    Besides the requested cut, it tries to remove one channel and all channels but one, because of conditions such as
    ``> 16`` and ``% 2``.
    """

    def __init__(
        self, model: nn.Module, sizes: Mapping[str, tuple[int, int]], input_shape: tuple[int, int, int]
    ) -> None:
        self._sizes, self._shape = sizes, input_shape
        self._model = copy.deepcopy(model).to("meta")
        self._expected = self._read(self._model)

    def trouble(self, cut: Cut) -> str:
        """Which number changes if groups keep only the channels in ``cut``; empty if none does."""
        if not self._expected:
            return ""
        fewest = {group: spread(group, 1) for group in cut}
        most = {group: spread(group, group.width - 1) for group in cut}
        return next(filter(None, map(self._differs, (cut, fewest, most))), "")

    def _differs(self, cut: Cut) -> str:
        found = self._read(_cut_model(self._model, cut, self._sizes))
        for expected, number in zip(self._expected, found, strict=False):
            if (expected.place, expected.value) != (number.place, number.value):
                return f"the forward reads their count as a number ({expected.place})"
        return ""

    def _read(self, model: nn.Module) -> Sequence[Number]:
        try:
            return evaluation_graph(model, (), self._sizes, self._shape).numbers
        except ModelError:  # it cannot be traced
            return ()


class _Values:
    """Runs cut copies of a model and compares their logits with the masked model's."""

    def __init__(self, model: nn.Module, sizes: Mapping[str, tuple[int, int]], image: torch.Tensor) -> None:
        self._model, self._sizes = model, sizes
        self._image = image.to(next(model.parameters()).device)

    def trouble(self, cut: Cut) -> str:
        """What fails if groups keep only the channels in ``cut``; empty if nothing does."""
        with torch.no_grad():
            expected = masked(self._model, _keeps(cut, self._sizes))(self._image)
            try:
                output = _cut_model(self._model, cut, self._sizes)(self._image)
            except Exception as error:  # as above, for a model that cannot run without values
                return f"without some of them the forward fails: {str(error).splitlines()[0]}"
        if _shapes(output) != _shapes(expected):
            return "without some of them the logits have another shape"
        return next(filter(None, map(_deviates, tensors_in(output), tensors_in(expected))), "")


def _deviates(found: torch.Tensor, expected: torch.Tensor) -> str:
    if not torch.isfinite(expected).all():
        return ""  # the weights are not finite: scoring the channels will name the layer
    deviation = (found - expected).abs().max() / expected.abs().max().clamp(min=1e-12)
    return "" if deviation <= LARGEST_DEVIATION else "without some of them the forward computes something else"


def _keeps(cut: Cut, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Keep]:
    return keeps_of(list(cut), {group.name: kept for group, kept in cut.items()}, sizes)


def _cut_model(model: nn.Module, cut: Cut, sizes: Mapping[str, tuple[int, int]]) -> nn.Module:
    return apply_keeps_(copy.deepcopy(model), _keeps(cut, sizes))


def _shapes(output: object) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors_in(output)]
