"""What the operators of an ONNX network make of channels, and what their constants become when channels are gone.

Only such operators are known as treat every channel like the others, so that any number of them will do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import ModelError

__all__ = ["Channels", "Constants", "Node", "describe", "follow", "refusal"]

# fmt: off
CHANNELWISE = frozenset((
    "Abs", "Add", "AveragePool", "Celu", "Clip", "Div", "Dropout", "Elu", "Erf", "Exp", "Gelu", "GlobalAveragePool",
    "GlobalMaxPool", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "LogSoftmax", "Max", "MaxPool", "Min",
    "Mish", "Mul", "Neg", "PRelu", "Pad", "Pow", "ReduceMax", "ReduceMean", "ReduceSum", "Relu", "Resize", "Selu",
    "Sigmoid", "Softmax", "Softplus", "Softsign", "Sqrt", "Squeeze", "Sub", "Swish", "Tanh", "Unsqueeze",
))
# fmt: on
RESHAPING = ("Flatten", "Reshape")
WITH_AXES = ("ReduceMax", "ReduceMean", "ReduceSum", "Squeeze", "Unsqueeze")
# The input that says which shape the output must have.
SHAPE_INPUT = {"Reshape": 1, "Resize": 3}

Channels = tuple[int, int]
"""Of one tensor: how many there are in full width, and how many are left."""
Node = Any
"""An onnx.NodeProto, which has no annotations."""


@dataclass
class Constants:
    """The constants of a network, and what becomes of them: other shapes of float ones, other values of integer ones.

    ``tensor_shapes`` holds the shape in full width of every tensor; a size that is not known is 0.
    """

    arrays: Mapping[str, NDArray[Any]]
    tensor_shapes: Mapping[str, tuple[int, ...]]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    values: dict[str, NDArray[np.int64]] = field(default_factory=dict)


def refusal(node: Node, layer: str) -> ModelError:
    """The error that ``node``, behind ``layer``, cannot be followed."""
    return ModelError(
        f"The network holds a {node.op_type} behind {layer}, whose shapes at other widths are not known.",
        "Prune by multiply-accumulates: --budget 50%flops.",
    )


def describe(node: Node) -> str:
    """The operator and what its window is like, such as ``Conv 3x3 strides 2x2``."""
    sizes = {attribute.name: tuple(attribute.ints) for attribute in node.attribute}
    words = [node.op_type]
    if "kernel_shape" in sizes:
        words.append("x".join(map(str, sizes["kernel_shape"])))
    for name in ("strides", "dilations"):
        if set(sizes.get(name, ())) - {1}:
            words += [name, "x".join(map(str, sizes[name]))]
    return " ".join(words)


def follow(node: Node, layer: str, channels: Mapping[str, Channels], constants: Constants) -> Channels:
    """Channels of what ``node``, behind ``layer``, puts out; what becomes of its constants is noted in ``constants``.

    Raises:
        ModelError: the operator is not known, or not one that treats all channels alike in this place.
    """
    known = [channels[name] for name in node.input if name in channels]
    if not known or node.op_type not in (*CHANNELWISE, *RESHAPING, "Concat"):
        raise refusal(node, layer)
    if node.op_type == "Concat":
        fixed = [constants.arrays[name].shape[1] for name in node.input if name not in channels]
        old, new = (sum(fixed) + sum(counts) for counts in zip(*known, strict=True))
    else:
        factor = _spread(node, constants.tensor_shapes) if node.op_type in RESHAPING else 1
        old, new = (count * factor for count in max(known))
        if any(before * factor == old and after * factor != new for before, after in known):
            raise refusal(node, layer)
    shape = constants.tensor_shapes.get(node.output[0], ())
    if shape[1:2] != (old,) or old < 1 or not _leaves_channels(node, constants):
        raise refusal(node, layer)
    for name in node.input if node.op_type != "Concat" else ():
        _resize_(name, constants, 1 - len(shape), old, new)
    _retarget_(node, constants, len(shape), new)
    return old, new


def _spread(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """How many places of the output each channel gets: all positions of a map that is flattened; 0 if it is not so."""
    before, after = shapes.get(node.input[0], (0, 0)), shapes.get(node.output[0], (0, 0))
    positions, left = math.prod(before[2:]), math.prod(after[2:])
    if positions == left:
        return 1
    return positions if left == 1 else 0


def _leaves_channels(node: Node, constants: Constants) -> bool:
    """Whether the axes that ``node`` takes together, away or puts in are those behind the channels."""
    if node.op_type not in WITH_AXES:
        return True
    axes = next((tuple(attribute.ints) for attribute in node.attribute if attribute.name == "axes"), ())
    if len(node.input) > 1 and node.input[1]:
        axes = tuple(constants.arrays.get(node.input[1], np.array([])).ravel().tolist())
    of = node.output[0] if node.op_type == "Unsqueeze" else node.input[0]
    rank = len(constants.tensor_shapes[of])
    return bool(axes) and all(axis % rank > 1 for axis in axes)


def _resize_(name: str, constants: Constants, axis: int, old: int, new: int) -> None:
    """Note the shape of a constant that holds a value for each channel; ``axis`` counts from the end."""
    array = constants.arrays.get(name)
    if array is None or array.dtype != np.float32 or array.ndim < -axis or array.shape[axis] != old:
        return
    shape = list(array.shape)
    shape[axis] = new
    constants.shapes[name] = tuple(shape)


def _retarget_(node: Node, constants: Constants, rank: int, new: int) -> None:
    """Note the value of a constant that says which shape the output must have."""
    place = SHAPE_INPUT.get(node.op_type, len(node.input))
    name = node.input[place] if place < len(node.input) else ""
    if name:
        target = constants.arrays.get(name)
        if target is None:
            raise refusal(node, "its shape is computed")
        if len(target) == rank and target[1] > 0:
            constants.values[name] = np.concatenate([target[:1], [new], target[2:]]).astype(np.int64)
