"""How ONNX operators map inputs with removed channels to their outputs.

For each tensor, the kept indices of each axis are known. An operator without a rule accepts only whole tensors.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import ModelError
from catro_deploy.graph.onnx.flow import Flow, Kept, UnknownError, cut_constant_, is_whole, retarget_, whole
from catro_deploy.graph.onnx.onnx_layers import Node, int_of, ints_of, text_of

__all__ = ["follow", "refusal"]

# fmt: off
ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid",
    "HardSwish", "Identity", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "Max",
    "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu",
    "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan",
    "Tanh", "ThresholdedRelu", "Where", "Xor",
)
# fmt: on
SPATIAL = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "LRN", "LpPool", "MaxPool")
REDUCING = (
    "ReduceL1",
    "ReduceL2",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)

Rule = Callable[[Node, "Flow"], Sequence[Kept]]


def refusal(node: Node, layer: str) -> ModelError:
    """The error for a ``node`` after ``layer`` that cannot be followed."""
    return ModelError(
        f"The network has an operator {node.op_type} after {layer} whose shapes at other widths are not known.",
        "Prune by multiply-accumulates: --budget 50%flops.",
    )


def follow(node: Node, layer: str, flow: Flow) -> None:
    """Record in ``flow`` the outputs of ``node``, after ``layer``, and how its constants are cut.

    Raises:
        ModelError: its input has removed channels, and their effect on its output is not known.
    """
    outputs = [name for name in node.output if name]
    try:
        rule = RULES.get(node.op_type, _only_whole)
        found = rule(node, flow)
        if any(tuple(map(len, kept)) != flow.full[name] for name, kept in zip(outputs, found, strict=False)):
            raise UnknownError
    except (UnknownError, LookupError, ValueError):  # arithmetic on shapes fails if they are not as expected
        if not all(is_whole(flow.kept[name]) for name in node.input if name in flow.kept):
            raise refusal(node, layer) from None
        found = [whole(flow.full.get(name, ())) for name in outputs]
    flow.kept.update(zip(outputs, found, strict=False))


def _only_whole(node: Node, flow: Flow) -> Sequence[Kept]:
    raise UnknownError


def _elementwise(node: Node, flow: Flow) -> Sequence[Kept]:
    """Operands are broadcast; constants are cut like the other operands."""
    kept = _broadcast([flow.kept[name] for name in node.input if name in flow.kept], flow.full[node.output[0]])
    for name in node.input:
        if name in flow.arrays:
            cut_constant_(name, kept[len(kept) - flow.arrays[name].ndim :], flow)
    return [kept] * len(node.output)


def _broadcast(operands: Sequence[Kept], shape: Sequence[int]) -> Kept:
    """What is left of a tensor of ``shape`` that is computed from ``operands`` element by element."""
    kept = []
    for axis, size in enumerate(shape, start=-len(shape)):
        masks = [one[axis] for one in operands if len(one) >= -axis and len(one[axis]) > 1]
        if any(not np.array_equal(mask, masks[0]) for mask in masks):
            raise UnknownError
        kept.append(masks[0] if masks else np.ones(size, bool))
    return tuple(kept)


def _spatial(node: Node, flow: Flow) -> Sequence[Kept]:
    """Operators on each channel separately, over all its positions."""
    batch, channels, *positions = flow.kept[node.input[0]]
    if not is_whole(tuple(positions)):
        raise UnknownError
    kept = (batch, channels, *whole(flow.full[node.output[0]][2:]))
    for name in node.input[1:] if node.op_type == "InstanceNormalization" else ():
        cut_constant_(name, [channels], flow)
    if node.op_type == "Resize" and len(node.input) > 3 and node.input[3]:
        retarget_(node.input[3], kept, flow)
    return [kept] * len(node.output)


def _transpose(node: Node, flow: Flow) -> Sequence[Kept]:
    kept = flow.kept[node.input[0]]
    order = ints_of(node, "perm") or range(len(kept))[::-1]
    return [tuple(kept[axis] for axis in order)]


def _concat(node: Node, flow: Flow) -> Sequence[Kept]:
    """Constants are cut on the other axes, like the tensors that they are concatenated with."""
    rank = len(flow.full[node.output[0]])
    joined = int_of(node, "axis") % rank
    known = [flow.kept[name] for name in node.input if name in flow.kept]
    first = known[0]
    if any(not np.array_equal(one[axis], first[axis]) for one in known for axis in range(rank) if axis != joined):
        raise UnknownError
    parts = []
    for name in node.input:
        masks = list(flow.kept.get(name, first))
        if name in flow.arrays:
            masks[joined] = np.ones(flow.arrays[name].shape[joined], bool)
            cut_constant_(name, masks, flow)
        parts.append(masks[joined])
    return [(*first[:joined], np.concatenate(parts), *first[joined + 1 :])]


def _split(node: Node, flow: Flow) -> Sequence[Kept]:
    kept = flow.kept[node.input[0]]
    axis = int_of(node, "axis") % len(kept)
    ends = np.cumsum([flow.full[name][axis] for name in node.output])
    parts = np.split(kept[axis], ends[:-1])
    counts = [int(part.sum()) for part in parts]
    if len(node.input) > 1 and node.input[1]:
        flow.values[node.input[1]] = np.array(counts, np.int64)
    elif counts != _even(sum(counts), len(counts)):
        raise UnknownError
    return [(*kept[:axis], part, *kept[axis + 1 :]) for part in parts]


def _even(total: int, parts: int) -> list[int]:
    """Sizes of the ``parts`` of a Split: equal except the last."""
    size = math.ceil(total / parts)
    return [size] * (parts - 1) + [total - size * (parts - 1)]


def _slice(node: Node, flow: Flow) -> Sequence[Kept]:
    kept = list(flow.kept[node.input[0]])
    starts, ends = (flow.arrays[name].copy() for name in node.input[1:3])
    axes, steps = (
        flow.arrays[node.input[place]] if len(node.input) > place and node.input[place] else default
        for place, default in ((3, np.arange(len(starts))), (4, np.ones(len(starts), np.int64)))
    )
    for i, (axis, step) in enumerate(zip(axes.tolist(), steps.tolist(), strict=True)):
        mask = kept[axis]
        taken = slice(int(starts[i]), int(ends[i]), step)
        kept[axis] = mask[taken]
        if not mask.all():
            first, last, _ = taken.indices(len(mask))
            if step != 1:
                raise UnknownError
            starts[i] = mask[:first].sum()
            ends[i] = mask[:last].sum() if last < len(mask) else ends[i]
    flow.values |= {node.input[1]: starts, node.input[2]: ends}
    return [tuple(kept)]


def _gather(node: Node, flow: Flow) -> Sequence[Kept]:
    """A Gather from an axis from which nothing is removed."""
    kept = flow.kept[node.input[0]]
    axis = int_of(node, "axis") % len(kept)
    if not kept[axis].all():
        raise UnknownError
    return [(*kept[:axis], *whole(flow.arrays[node.input[1]].shape), *kept[axis + 1 :])]


def _gather_nd(node: Node, flow: Flow) -> Sequence[Kept]:
    """A GatherND from leading axes from which nothing is removed."""
    kept, indices = flow.kept[node.input[0]], flow.arrays[node.input[1]]
    *places, axes = indices.shape
    if int_of(node, "batch_dims") or not is_whole(kept[:axes]):
        raise UnknownError
    return [(*whole(places), *kept[axes:])]


def _reshape(node: Node, flow: Flow) -> Sequence[Kept]:
    """Reshape, Flatten, Squeeze and Unsqueeze: what is left must be whole indices of the new axes, too."""
    kept = _reshaped(flow.kept[node.input[0]], flow.full[node.output[0]])
    if node.op_type == "Reshape":
        retarget_(node.input[1], kept, flow)
    return [kept]


def _reshaped(kept: Kept, shape: Sequence[int]) -> Kept:
    if is_whole(kept):
        return whole(shape)
    left = _product(kept).reshape(shape)
    axes = range(len(shape))
    found = tuple(np.asarray(left.any(axis=tuple(other for other in axes if other != axis))) for axis in axes)
    if not np.array_equal(_product(found), left):
        raise UnknownError
    return found


def _product(kept: Kept) -> NDArray[np.bool_]:
    """Which elements are left."""
    left = np.ones((), bool)
    for mask in kept:
        left = np.logical_and.outer(left, mask)
    return left


def _depth_to_space(node: Node, flow: Flow) -> Sequence[Kept]:
    batch, channels, *_ = flow.kept[node.input[0]]
    count, side_by_side = int_of(node, "blocksize") ** 2, text_of(node, "mode") == "CRD"
    # Each output channel combines ``count`` inputs, which are adjacent or as far apart as possible.
    outputs = len(channels) // count
    split = _reshaped((channels,), (outputs, count) if side_by_side else (count, outputs))
    left, places = split if side_by_side else split[::-1]
    if not places.all():
        raise UnknownError
    return [(batch, left, *whole(flow.full[node.output[0]][2:]))]


def _space_to_depth(node: Node, flow: Flow) -> Sequence[Kept]:
    batch, channels, *_ = flow.kept[node.input[0]]
    return [(batch, np.tile(channels, int_of(node, "blocksize") ** 2), *whole(flow.full[node.output[0]][2:]))]


def _reduce(node: Node, flow: Flow) -> Sequence[Kept]:
    kept = flow.kept[node.input[0]]
    axes = ints_of(node, "axes")
    if len(node.input) > 1 and node.input[1]:
        axes = flow.arrays[node.input[1]].ravel().tolist()
    gone = {axis % len(kept) for axis in axes or range(len(kept))}
    if int_of(node, "keepdims", 1):
        return [tuple(np.ones(1, bool) if axis in gone else mask for axis, mask in enumerate(kept))]
    return [tuple(mask for axis, mask in enumerate(kept) if axis not in gone)]


def _expand(node: Node, flow: Flow) -> Sequence[Kept]:
    kept = _broadcast([flow.kept[node.input[0]]], flow.full[node.output[0]])
    retarget_(node.input[1], kept, flow)
    return [kept]


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys((*SPATIAL, "Pad", "Resize"), _spatial),
    **dict.fromkeys(REDUCING, _reduce),
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), _reshape),
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Transpose": _transpose,
}
