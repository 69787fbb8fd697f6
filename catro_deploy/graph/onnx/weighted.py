"""The convolutions and linear layers of an ONNX network whose modules keep some of their channels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import ModelError
from catro_deploy.graph.onnx.flow import Flow, Kept, is_whole, sizes_of, whole
from catro_deploy.graph.onnx.onnx_layers import Node, int_of
from catro_deploy.graph.onnx.operators import follow, refusal
from catro_deploy.records import Keep

__all__ = ["cut_"]

Mask = NDArray[np.bool_]


def cut_(node: Node, module: str, sizes: tuple[int, int], keep: Keep, flow: Flow) -> None:
    """Record in ``flow`` what is left of the output and the constants of ``node``.

    It belongs to ``module``, which has ``sizes`` (out, in). A grouped convolution gets the number of groups that are
    left.

    Raises:
        ModelError: the channels that it reads are not those that the module keeps, or none would be left.
    """
    groups = int_of(node, "group", 1)
    array = flow.arrays[node.input[1]]
    as_in_module = sizes_of(_weight_kept(node, whole(sizes), groups, array.shape[2:])) == array.shape
    if not as_in_module or int_of(node, "transA"):
        follow(node, module, flow)  # the weight is not used as the module uses it
        return
    out, inputs = _mask(sizes[0], keep.out), _mask(sizes[1], keep.inputs)
    if groups > 1:  # each is kept or removed as a whole
        left = out.reshape(groups, -1).any(axis=1) & inputs.reshape(groups, -1).any(axis=1)
        out, inputs = (np.repeat(left, size // groups) for size in sizes)
        next(attribute for attribute in node.attribute if attribute.name == "group").i = int(left.sum())
    if not (out.any() and inputs.any()):
        raise ModelError(f"At these widths {module} would be left without channels.", "Keep more channels.")

    read = flow.kept[node.input[0]]
    axis = len(read) - 1 if node.op_type == "MatMul" else 1
    positions = tuple(mask for other, mask in enumerate(read) if other != axis)
    if not np.array_equal(read[axis], inputs) or not is_whole(positions):
        raise refusal(node, module)
    made = flow.full[node.output[0]]
    flow.kept[node.output[0]] = tuple(out if at == axis else np.ones(size, bool) for at, size in enumerate(made))
    flow.cut[node.input[1]] = _weight_kept(node, (out, inputs), groups, array.shape[2:])
    for name in node.input[2:]:
        if name in flow.arrays:
            bias = flow.arrays[name].shape
            flow.cut[name] = tuple(out if size == sizes[0] else np.ones(size, bool) for size in bias)


def _weight_kept(node: Node, channels: Kept, groups: int, window: Sequence[int]) -> Kept:
    """What is left of the weight of a layer that keeps these ``channels`` (out, in)."""
    out, inputs = channels
    match node.op_type:
        case "ConvTranspose":
            return inputs, out if groups == 1 else np.ones(len(out) // groups, bool), *whole(window)
        case "MatMul":
            return inputs, out
        case "Gemm":
            return (out, inputs) if int_of(node, "transB") else (inputs, out)
    return out, inputs if groups == 1 else np.ones(len(inputs) // groups, bool), *whole(window)


def _mask(size: int, kept: Sequence[int] | None) -> Mask:
    mask = np.full(size, kept is None)
    mask[list(kept or ())] = True
    return mask
