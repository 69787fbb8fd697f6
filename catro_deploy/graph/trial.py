"""Cutting groups of channels on trial: does the model still run, and compute what it would without reading them?"""

import copy
import random
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from catro_deploy.graph.surgery import apply_keeps_, keeps_of, masked, spread
from catro_deploy.records import Group

__all__ = ["stubborn"]

LARGEST_DEVIATION = 1e-3
"""Of the largest logit, after cuts throughout a network: more is not rounding."""


def stubborn(
    model: nn.Module,
    groups: Sequence[Group],
    sizes: Mapping[str, tuple[int, int]],
    input_shape: tuple[int, int, int],
) -> dict[str, str]:
    """Which of ``groups`` of ``model`` (eval mode) cannot lose channels, and why.

    Each loses another number of them, for a forward may count on two being equally wide.
    """
    draw = random.Random(0)
    trial = _Trial(model, sizes, input_shape)
    narrow = {group: spread(group, draw.randint(1, group.width - 1)) for group in groups if group.width > 1}
    reasons = _culprits(trial, narrow)
    willing: dict[Group, tuple[int, ...]] = {}
    if reasons and not trial.trouble({group: narrow[group] for group in narrow if group.name not in reasons}):
        return reasons
    for group in narrow if reasons else ():  # each fails only together with others: those that come first may go
        trouble = reasons.get(group.name) or trial.trouble({**willing, group: narrow[group]})
        if trouble:
            reasons[group.name] = trouble
        else:
            willing[group] = narrow[group]
    return reasons


def _culprits(trial: "_Trial", kept: Mapping[Group, tuple[int, ...]]) -> dict[str, str]:
    """Groups that fail alone, or of two halves that fail only together the last one, found by halving."""
    trouble = trial.trouble(kept) if kept else ""
    if not trouble:
        return {}
    if len(kept) == 1:
        return {group.name: trouble for group in kept}
    several = list(kept.items())
    half = len(several) // 2
    found = _culprits(trial, dict(several[:half])) | _culprits(trial, dict(several[half:]))
    return found or {several[-1][0].name: trouble}


class _Trial:
    """Cuts copies of a model and holds what they compute against the masked model."""

    def __init__(
        self, model: nn.Module, sizes: Mapping[str, tuple[int, int]], input_shape: tuple[int, int, int]
    ) -> None:
        self._model, self._sizes = model, sizes
        image = torch.randn((1, *input_shape), generator=torch.Generator().manual_seed(0))
        self._image = image.to(next(model.parameters()).device)

    def trouble(self, kept: Mapping[Group, tuple[int, ...]]) -> str:
        """What goes wrong when groups keep only those channels, or nothing."""
        keeps = keeps_of(list(kept), {group.name: channels for group, channels in kept.items()}, self._sizes)
        with torch.no_grad():
            expected = masked(self._model, keeps)(self._image)
            try:
                found = apply_keeps_(copy.deepcopy(self._model), keeps)(self._image)
            except Exception as error:  # whatever the forward raises when sizes that it holds do not fit any more
                return f"without some of them the forward fails: {str(error).splitlines()[0]}"
        if found.shape != expected.shape:
            return "without some of them the logits have another shape"
        if not torch.isfinite(expected).all():
            return ""  # weights that compute nothing: scoring the channels says which layer it is
        deviation = (found - expected).abs().max() / expected.abs().max().clamp(min=1e-12)
        return "" if deviation <= LARGEST_DEVIATION else "without some of them the forward computes something else"
