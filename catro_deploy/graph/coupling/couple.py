"""Which channels are coupled, found by running the model once and following every tensor operation.

Each index of an axis of a parameter or buffer gets a label. Each operation of the forward (as torch dispatches it, so
that functional calls, methods and users' own modules are treated alike) maps the labels of its inputs to labels of its
outputs. Convolutions and linear layers join the labels of their input with those of their weights' inputs, and return
the labels of their weights' outputs; elementwise operations join the labels of all operands; views carry labels along.
An operation without a rule, or one that mixes channels without weights, fixes all channels of its inputs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from catro_deploy.graph.coupling.atoms import Atoms, Labels
from catro_deploy.graph.coupling.follower import Follower, Leaf, tensors_in
from catro_deploy.graph.coupling.rules import rule_of

__all__ = ["Coupling", "couple"]


@dataclass(frozen=True)
class Coupling:
    """The ``atoms`` of a model, the labels of its parameters, buffers and sizes, and those of its logits, if any."""

    atoms: Atoms
    leaves: Mapping[Leaf, Labels]
    logits: Labels


def couple(model: nn.Module, image: torch.Tensor, not_sizes: Collection[str] = ()) -> Coupling:
    """Run ``model`` (eval mode) on ``image`` (1, channels, height, width) and follow its channels.

    Numbers that a module holds as sizes of what it splits or reshapes change with the channels too, except those in
    ``not_sizes``.
    """
    follower = Follower(model, rule_of, not_sizes)
    with torch.no_grad(), follower.places(model), follower:
        output = model(image)
    axes = [labels for tensor in tensors_in(output) for labels in follower.of(tensor).axes.values()]
    for labels in axes:
        follower.atoms.fix(labels.tolist(), "the logits")
    return Coupling(follower.atoms, follower.leaves, axes[0] if axes else follower.atoms.fresh(0))
