"""Convolutions and linear layers as matrix products: rows of inputs at some positions, times a matrix of weights.

A row holds all inputs of one output, channel by channel and, within a channel, in the order of the kernel. A grouped
convolution is one product per group. A transposed convolution is a convolution of stride 1 with the flipped kernel
over its input, with zeros inserted in between (Dumoulin and Visin, 2016, "A guide to convolution arithmetic").
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import nn
from torch.nn import functional

from catro_deploy.graph.cut.kinds import groups_of, is_transposed

__all__ = [
    "Solvable",
    "column_channels",
    "layer_of",
    "outputs_at",
    "positions_of",
    "rows_at",
    "set_weight_matrix_",
    "weight_matrix",
    "why_opaque",
]

Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
Solvable = nn.Conv1d | nn.Conv2d | nn.Conv3d | Transposed | nn.Linear
"""The types of modules that are such products."""


def why_opaque(module: nn.Module) -> str:
    """Why ``module`` is not such a product; empty if it is."""
    kind: Any = next((kind for kind in get_args(Solvable) if isinstance(module, kind)), None)
    if kind is None:
        return "it is not a convolution or linear layer"
    if type(module).forward is not kind.forward or module._forward_pre_hooks or module._forward_hooks:
        return f"a {type(module).__name__} may do more than a {kind.__name__}"
    return "" if "weight" in module._parameters else "its weight is computed"


def layer_of(model: nn.Module, name: str) -> Solvable:
    """The layer ``name`` of ``model``, which is one of these types."""
    layer = model.get_submodule(name)
    assert isinstance(layer, Solvable), f"{name} is a {type(layer).__name__}"
    return layer


def weight_matrix(module: Solvable) -> torch.Tensor:
    """The weights as (groups, columns, outputs of a group)."""
    weight = module.weight.detach()
    groups = groups_of(module)
    if is_transposed(module):
        # (inputs, outputs of a group, kernel), the inputs group by group
        flipped = weight.flip(tuple(range(2, weight.ndim))) if weight.ndim > 2 else weight
        parts = flipped.reshape(groups, -1, weight.shape[1], math.prod(weight.shape[2:]))
        return parts.movedim(2, 3).flatten(1, 2)
    return weight.reshape(groups, weight.shape[0] // groups, -1).mT


def set_weight_matrix_(module: Solvable, matrix: torch.Tensor) -> None:
    """Set the weights of ``module`` to ``matrix``, in the layout of ``weight_matrix``."""
    weight = module.weight
    if is_transposed(module):
        groups, outputs, kernel = groups_of(module), weight.shape[1], math.prod(weight.shape[2:])
        parts = matrix.reshape(groups, -1, kernel, outputs).movedim(3, 2)
        found = parts.reshape(weight.shape).flip(tuple(range(2, weight.ndim)))
    else:
        found = matrix.mT.reshape(weight.shape)
    with torch.no_grad():
        weight.copy_(found)


def column_channels(module: Solvable) -> int:
    """Number of columns of one input channel."""
    return math.prod(getattr(module, "kernel_size", (1,)))


def positions_of(module: Solvable, output: Sequence[int], most: int, generator: torch.Generator) -> torch.Tensor:
    """At most ``most`` positions of an output of shape ``output``, as ascending flat indices."""
    count = math.prod(output[1:-1] if isinstance(module, nn.Linear) else output[2:])
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=generator)[:most].sort().values


def outputs_at(
    module: Solvable, output: torch.Tensor, positions: torch.Tensor, channels: torch.Tensor | None = None
) -> torch.Tensor:
    """``output``, or its ``channels``, at these positions: (groups, images * positions, outputs of a group).

    It is like an output of ``module``; if it has further channels, ``channels`` are those of ``module``.
    """
    positions = positions.to(output.device)
    if isinstance(module, nn.Linear):
        chosen = output.flatten(1, -2)[:, positions].flatten(0, 1) if output.ndim > 2 else output
    else:
        chosen = _channels_at(output, positions).flatten(0, 1)  # (rows, channels)
    if channels is not None:
        chosen = chosen.index_select(1, channels)
    return chosen.view(len(chosen), groups_of(module), -1).movedim(1, 0)


def rows_at(module: Solvable, value: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The parts of the input ``value`` that ``module`` reads for its outputs at these positions.

    Shape (groups, images * positions, columns).
    """
    if isinstance(module, nn.Linear):
        return outputs_at(module, value, positions)
    padded, stride = _padded(module, value)
    kernel, dilation = list(module.kernel_size), list(module.dilation)
    sizes = list(padded.shape[2:])
    spans = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    outputs = [(size - span - 1) // step + 1 for size, span, step in zip(sizes, spans, stride, strict=True)]
    starts = [place * step for place, step in zip(torch.unravel_index(positions, outputs), stride, strict=True)]
    reach = [torch.arange(k) * d for k, d in zip(kernel, dilation, strict=True)]
    offsets = list(zip(*itertools.product(*(r.tolist() for r in reach)), strict=True))
    index = torch.zeros(len(positions), math.prod(kernel), dtype=torch.long)
    for start, offset, size in zip(starts, offsets, sizes, strict=True):
        index = index * size + (start[:, None] + torch.tensor(offset)[None])
    gathered = _channels_at(padded, index.to(value.device).flatten())
    gathered = gathered.view(len(value) * len(positions), -1, padded.shape[1]).mT  # (rows, channels, kernel)
    return gathered.reshape(len(gathered), groups_of(module), -1).movedim(1, 0)


def _channels_at(maps: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The channels of ``maps`` (images, channels, ...) at flat ``positions``: (images, positions, channels)."""
    if maps.movedim(1, -1).is_contiguous():
        return maps.movedim(1, -1).flatten(1, -2).index_select(1, positions)
    return maps.flatten(2).index_select(2, positions).mT.contiguous()


def _padded(
    module: nn.Conv1d | nn.Conv2d | nn.Conv3d | Transposed, value: torch.Tensor
) -> tuple[torch.Tensor, Sequence[int]]:
    """The padded input, and the stride over it."""
    if not isinstance(module, Transposed):
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        return functional.pad(value, module._reversed_padding_repeated_twice, mode=mode), module.stride
    spread = [(size - 1) * step + 1 for size, step in zip(value.shape[2:], module.stride, strict=True)]
    stuffed = value.new_zeros(*value.shape[:2], *spread)
    between = [slice(None), slice(None), *(slice(None, None, step) for step in module.stride)]
    stuffed[tuple(between)] = value
    border: list[int] = []
    for axis in reversed(range(len(spread))):
        span = module.dilation[axis] * (module.kernel_size[axis] - 1) - int(module.padding[axis])
        border += [span, span + module.output_padding[axis]]
    return functional.pad(stuffed, border), [1] * len(spread)
