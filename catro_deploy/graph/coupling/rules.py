"""How tensor operations map labels of inputs to labels of outputs; view_rules.py has those that only move elements."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from catro_deploy.graph.coupling.atoms import CONSTANT, Labels, constant
from catro_deploy.graph.coupling.follower import Axes, Follower, Given, LabelledTensors, Rule, tensors_in
from catro_deploy.graph.coupling.view_rules import VIEW_RULES

__all__ = ["rule_of"]

_RULES: dict[str, Rule] = dict(VIEW_RULES)


def rule_of(func: Any) -> Rule:  # noqa: ANN401 - an OpOverload
    """The rule of an operation; if it has none, that of elementwise or of unknown operations."""
    name = func.overloadpacket.__name__
    known = _RULES.get(name) if func.namespace == "aten" else None
    if known is not None:
        return known
    return _pointwise if torch.Tag.pointwise in func.tags else partial(_unknown, name=name)


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def _unknown(follower: Follower, given: Given, result: Any, *, name: str) -> LabelledTensors:  # noqa: ANN401
    for tensor in tensors_in(given):
        for labels in follower.of(tensor).axes.values():
            follower.fix(labels, f"{name} has an unknown effect on them")
    return []


# --- the same channels out as in ------------------------------------------------------------------------------------


@_rule("copy_", "_prelu_kernel", "masked_fill", "hardswish", "hardswish_", "mish_", "gelu_", "threshold_",
       "log_sigmoid_forward", "rrelu_with_noise", "rrelu_with_noise_")  # fmt: skip
def _pointwise(follower: Follower, given: Given, result: Any) -> LabelledTensors:  # noqa: ANN401
    """Elementwise with broadcasting: the labels of all operands are joined.

    PyTorch tags such operations; those named above lack the tag.
    """
    out = next(tensors_in(result))
    axes = _joined(follower, tensors_in(given), out.ndim, "they meet other channels")
    return [(out, {axis: labels for axis, labels in axes.items() if len(labels) == out.shape[axis]})]


@_rule("clone", "alias", "detach", "_to_copy", "contiguous", "native_dropout", "zeros_like", "ones_like", "empty_like",
       "full_like", "rand_like", "randn_like", "fill_", "zero_", "lift_fresh")  # fmt: skip
def _same(follower: Follower, given: Given, result: Any) -> LabelledTensors:  # noqa: ANN401
    axes = dict(follower.of(next(tensors_in(given))).axes)
    return [(out, axes) for out in tensors_in(result)]


def _spatial(follower: Follower, given: Given, result: Any, *, positions: int) -> LabelledTensors:  # noqa: ANN401
    """Operations on each feature map separately: the last axes are positions."""
    source = next(tensors_in(given))
    last = range(source.ndim - positions, source.ndim)
    return [(out, _without(follower, source, last, "they are taken as positions")) for out in tensors_in(result)]


for _name in (
    "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact2d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa", "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d",
):  # fmt: skip
    _RULES[_name] = partial(_spatial, positions=int(re.findall(r"(\d)d", _name)[0]))


# --- weights --------------------------------------------------------------------------------------------------------


@_rule("convolution")
def _convolution(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    source, weight, bias = given["input"], given["weight"], given["bias"]
    read = _without(follower, source, range(2, source.ndim), "they are taken as positions")
    inputs = read.get(1, constant(source.shape[1]))
    axes = follower.of(weight).axes
    out_axis, in_axis = (1, 0) if given["transposed"] else (0, 1)
    if given["groups"] == 1:
        outputs = axes.get(out_axis, constant(result.shape[1]))
        _contract(follower, inputs, axes.get(in_axis, constant(len(inputs))), follower.of(weight).weight)
    else:
        outputs = _grouped(follower, inputs, given, result.shape[1])
    if bias is not None and bias.numel() > 1:
        follower.join(outputs, follower.of(bias).axes.get(0, constant(len(outputs))), "a bias is constant")
    return [(result, {1: outputs} if len(outputs) > 1 else {})]


def _grouped(follower: Follower, inputs: Labels, given: Given, out_channels: int) -> Labels:
    """Outputs of a grouped convolution: each of its groups, with all its inputs and outputs, is one atom."""
    weight, groups = given["weight"], given["groups"]
    atoms = follower.atoms.fresh(groups)
    follower.follow_stored_size(atoms)
    outputs, read = np.repeat(atoms, out_channels // groups), np.repeat(atoms, len(inputs) // groups)
    follower.fix(read[inputs == CONSTANT], "a grouped convolution reads constant channels")
    follower.tie(inputs, read, "a grouped convolution, which loses whole groups,")
    if not follower.of(weight).weight:
        follower.fix(atoms, "a grouped convolution has computed weights")
    elif not given["transposed"] and (follower.is_stored(weight) or 0 in follower.of(weight).axes):
        # Otherwise the forward repeats one kernel for each channel; a trial cut shows whether it does so for fewer.
        follower.join(outputs, follower.of(weight).axes.get(0, constant(len(outputs))), "its weights are constant")
    follower.label_weight(weight, outputs, read)
    return outputs


def _contract(follower: Follower, left: Labels, right: Labels, weighted: bool) -> None:
    """Labels that are summed over: both must stay, unless ``right`` is that of a weight, which is cut with ``left``."""
    if weighted:
        if name := follower.weight_with_outputs(right):
            follower.fix(right, f"{name} is applied to them transposed, as in x @ weight,")
        follower.join(left, right, "they meet weights or channels that cannot be cut")
    else:
        for labels in (left, right):
            follower.fix(labels, "they are summed over in a product of feature maps")


@_rule("mm", "bmm")
def _product(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    left, right = given["self"], given["mat2"]
    one, other = follower.of(left), follower.of(right)
    rows, columns = result.ndim - 2, result.ndim - 1
    inner = left.shape[-1]
    summed = one.axes.get(columns, constant(inner)), other.axes.get(rows, constant(inner))
    _contract(follower, *(summed[::-1] if one.weight else summed), one.weight != other.weight)
    axes = {axis: labels for axis, labels in one.axes.items() if axis < columns}
    return [(result, axes | {axis: labels for axis, labels in other.axes.items() if axis == columns})]


@_rule("addmm", "baddbmm")
def _affine(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    inner = {"self": given.get("mat1", given.get("batch1")), "mat2": given.get("mat2", given.get("batch2"))}
    ((_, axes),) = _product(follower, inner, result)
    columns, bias = result.ndim - 1, given["self"]
    added = follower.of(bias).axes.get(bias.ndim - 1)
    if columns in axes and bias.shape[-1:] == result.shape[-1:]:
        follower.join(axes[columns], constant(bias.shape[-1]) if added is None else added, "a bias is constant")
    return [(result, axes)]


# --- normalisation and reduction ------------------------------------------------------------------------------------


@_rule("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "cudnn_batch_norm",
       "_batch_norm_with_update", "_batch_norm_no_update", "batch_norm", "_batch_norm_impl_index")  # fmt: skip
def _batch_norm(follower: Follower, given: Given, result: Any) -> LabelledTensors:  # noqa: ANN401
    source = given["input"]
    axes = _without(follower, source, range(2, source.ndim), "they are normalised together")
    for name in ("weight", "bias", "running_mean", "running_var"):
        values = given.get(name)
        if values is not None and 1 in axes:
            mine = follower.of(values).axes.get(0, constant(len(axes[1])))
            follower.join(axes[1], mine, "a normalisation has constant parameters")
    return [(next(tensors_in(result)), axes)]


@_rule("native_group_norm")
def _group_norm(follower: Follower, given: Given, result: Any) -> LabelledTensors:  # noqa: ANN401
    source, groups = given["input"], given["group"]
    axes = _without(follower, source, range(2, source.ndim), "they are normalised together")
    if 1 in axes:
        kept = follower.atoms.fresh(groups)
        follower.join(axes[1], np.repeat(kept, len(axes[1]) // groups), "")
        follower.follow_stored_size(axes[1])
        follower.follow_stored_size(kept)
        for values in (given["weight"], given["bias"]):
            if values is not None:
                mine = follower.of(values).axes.get(0, constant(len(axes[1])))
                follower.join(axes[1], mine, "a normalisation has constant parameters")
        if groups == 1:
            follower.fix(axes[1], "all are normalised together")
    return [(next(tensors_in(result)), axes)]


@_rule("native_layer_norm")
def _layer_norm(follower: Follower, given: Given, result: Any) -> LabelledTensors:  # noqa: ANN401
    source = given["input"]
    axes = dict(follower.of(source).axes)
    for axis in range(source.ndim - len(given["normalized_shape"]), source.ndim):
        if axis in axes:
            follower.fix(axes[axis], "all are normalised together")
    return [(next(tensors_in(result)), axes)]


@_rule("_softmax", "_log_softmax", "cumsum", "flip", "roll", "sort")
def _along(follower: Follower, given: Given, result: Any) -> LabelledTensors:  # noqa: ANN401
    """Operations along axes: the labels of these axes must stay; the shape does not change."""
    source = given["self"]
    axes = dict(follower.of(source).axes)
    for axis in _dims(given.get("dim", given.get("dims")), source.ndim):
        if axis in axes:
            follower.fix(axes[axis], "they are used in order or all together")
    return [(out, axes) for out in tensors_in(result)]


@_rule("mean", "sum", "amax", "amin", "max", "min", "var", "std", "var_mean", "std_mean", "prod", "norm", "argmax",
       "linalg_vector_norm", "logsumexp", "any", "all")  # fmt: skip
def _reduction(follower: Follower, given: Given, result: Any) -> LabelledTensors:  # noqa: ANN401
    if isinstance(given.get("other"), torch.Tensor):
        return _pointwise(follower, given, result)
    source = given["self"]
    gone = _dims(given.get("dim"), source.ndim)
    left = _without(follower, source, gone, "they are reduced to one")
    if not given.get("keepdim"):
        left = {axis - sum(other < axis for other in gone): labels for axis, labels in left.items()}
    return [(out, left) for out in tensors_in(result)]


# --- shared ---------------------------------------------------------------------------------------------------------


def _joined(follower: Follower, tensors: Iterable[torch.Tensor], ndim: int, what: str) -> Axes:
    """Labels of the axes of tensors that are broadcast to ``ndim`` axes; labels that meet are joined."""
    axes: dict[int, list[Labels | None]] = {}
    sizes: dict[int, int] = {}
    for tensor in tensors:
        mine = follower.of(tensor).axes
        for axis, size in enumerate(tensor.shape):
            if size > 1:
                place = ndim - tensor.ndim + axis
                axes.setdefault(place, []).append(mine.get(axis))
                sizes[place] = size
    joined = {}
    for place, found in axes.items():
        first = next((labels for labels in found if labels is not None), None)
        if first is not None:
            joined[place] = first
            for labels in found:
                follower.join(first, constant(sizes[place]) if labels is None else labels, what)
    return joined


def _without(follower: Follower, source: torch.Tensor, axes: Sequence[int], what: str) -> Axes:
    """Labels of ``source`` except ``axes``, whose atoms must stay."""
    found = dict(follower.of(source).axes)
    for axis in axes:
        if axis in found:
            follower.fix(found.pop(axis), what)
    return found


def _dims(dim: Any, ndim: int) -> list[int]:  # noqa: ANN401 - an int, several, or None for all
    several = list(range(ndim)) if dim is None or dim == [] else dim if isinstance(dim, list | tuple) else [dim]
    return [axis % ndim for axis in several] if ndim else []
