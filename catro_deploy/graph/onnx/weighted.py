"""The convolutions and linear layers of an ONNX network whose modules keep some of their channels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import ModelError
from catro_deploy.graph.onnx.flow import Flow, is_whole
from catro_deploy.graph.onnx.onnx_layers import Node, int_of
from catro_deploy.graph.onnx.operators import follow, refusal
from catro_deploy.records import Keep

__all__ = ["cut_"]

Mask = NDArray[np.bool_]


def cut_(node: Node, module: str, sizes: tuple[int, int], keep: Keep, flow: Flow) -> None:
    """Record in ``flow`` the outputs of ``node``, of a ``module`` with ``sizes`` (out, in), and its constants' shapes.

    A grouped convolution gets the number of groups that are left.

    Raises:
        ModelError: the channels that it reads are not those that the module keeps, or none would be left.
    """
    groups = int_of(node, "group", 1)
    array = flow.arrays[node.input[1]]
    if _weight_shape(node, sizes, groups, array.shape[2:]) != array.shape or int_of(node, "transA"):
        follow(node, module, flow)  # the weight is not used as the module uses it
        return
    out, inputs = _mask(sizes[0], keep.out), _mask(sizes[1], keep.inputs)
    groups_left = groups
    if groups > 1:  # each is kept or removed as a whole
        left = out.reshape(groups, -1).any(axis=1) & inputs.reshape(groups, -1).any(axis=1)
        out, inputs = (np.repeat(left, size // groups) for size in sizes)
        groups_left = int(left.sum())
        next(attribute for attribute in node.attribute if attribute.name == "group").i = groups_left
    left_sizes = int(out.sum()), int(inputs.sum())
    if not all(left_sizes):
        raise ModelError(f"At these widths {module} would be left without channels.", "Keep more channels.")

    read = flow.kept[node.input[0]]
    axis = len(read) - 1 if node.op_type == "MatMul" else 1
    positions = tuple(mask for other, mask in enumerate(read) if other != axis)
    if not np.array_equal(read[axis], inputs) or not is_whole(positions):
        raise refusal(node, module)
    made = flow.full[node.output[0]]
    flow.kept[node.output[0]] = tuple(out if at == axis else np.ones(size, bool) for at, size in enumerate(made))
    flow.shapes[node.input[1]] = _weight_shape(node, left_sizes, groups_left, array.shape[2:])
    for name in node.input[2:]:
        if name in flow.arrays:
            bias = flow.arrays[name].shape
            flow.shapes[name] = tuple(left_sizes[0] if size == sizes[0] else size for size in bias)


def _weight_shape(node: Node, sizes: tuple[int, int], groups: int, window: Sequence[int]) -> tuple[int, ...]:
    """Shape of the weight that makes ``sizes`` (out, in) channels."""
    out, inputs = sizes
    match node.op_type:
        case "ConvTranspose":
            return inputs, out // groups, *window
        case "MatMul":
            return inputs, out
        case "Gemm":
            return (out, inputs) if int_of(node, "transB") else (inputs, out)
    return out, inputs // groups, *window


def _mask(size: int, kept: Sequence[int] | None) -> Mask:
    mask = np.full(size, kept is None)
    mask[list(kept or ())] = True
    return mask
