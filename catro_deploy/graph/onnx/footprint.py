"""The footprint of an ONNX file: bytes of storage, and memory for feature maps while its nodes run in order.

That memory is the minimum for a runtime that runs one node after the other and

- frees a feature map after the last node that reads it;
- lets an elementwise operation (an activation, an addition) overwrite an input of the same size that is not read
  afterwards, and copies nothing for a view (a reshape);
- computes with integers where the file has them: a quantised map is held in one byte per value.

Weights are not counted, nor is the workspace of a convolution. The image and the logits are counted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Extent", "FeatureMap", "Footprint", "feature_maps", "footprint_of", "peak_bytes", "tensor_extents"]

Proto = Any
"""An onnx.ModelProto, which has no annotations."""
Node = Any
"""An onnx.NodeProto, which has no annotations either."""

VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"}
QUANTISING = {"QuantizeLinear", "DequantizeLinear"}
BY_ELEMENT = {
    *("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Neg", "Abs", "Exp", "Log", "Sqrt", "Erf", "Reciprocal"),
    *("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish"),
    *("Mish", "Tanh", "Softplus", "Softsign", "ThresholdedRelu", "BatchNormalization", "Softmax", "LogSoftmax"),
}


@dataclass(frozen=True)
class Extent:
    """How many values a tensor has, and the bytes of each."""

    elements: int
    value_bytes: int


@dataclass(frozen=True)
class FeatureMap:
    """Memory that several ``tensors`` share one after the other, held from node ``first`` to node ``last``.

    The image is held from node 0 on. ``is_quantised``: whether one of them consists of one-byte integers.
    """

    tensors: tuple[str, ...]
    first: int
    last: int
    is_quantised: bool = False

    def elements(self, extents: Mapping[str, Extent]) -> int:
        """Number of its values."""
        return max((extents[name].elements for name in self.tensors if name in extents), default=0)

    def held_bytes(self, extents: Mapping[str, Extent]) -> int:
        """Bytes that it takes."""
        value_bytes = max((extents[name].value_bytes for name in self.tensors if name in extents), default=0)
        return self.elements(extents) * (1 if self.is_quantised else value_bytes)


@dataclass(frozen=True)
class Footprint:
    """Bytes of a file, and the most bytes of feature maps that are held at once when it runs."""

    file_bytes: int
    memory_bytes: int


def footprint_of(path: Path, batch: int = 1) -> Footprint:
    """The footprint of the ONNX file ``path`` for ``batch`` images at a time."""
    import onnx

    return Footprint(path.stat().st_size, peak_bytes(onnx.load(path), batch))


def peak_bytes(proto: Proto, batch: int = 1) -> int:
    """The most bytes of feature maps that are held at once for ``batch`` images."""
    extents = tensor_extents(proto, batch)
    maps = feature_maps(proto, extents)
    sizes = [one.held_bytes(extents) for one in maps]
    return max(
        sum(size for one, size in zip(maps, sizes, strict=True) if one.first <= at <= one.last)
        for at in range(len(proto.graph.node))
    )


def tensor_extents(proto: Proto, batch: int = 1) -> dict[str, Extent]:
    """The extent of each tensor for ``batch`` images, where its shape is known."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(proto).graph
    found = {}
    for value in (*inferred.value_info, *inferred.input, *inferred.output):
        tensor = value.type.tensor_type
        elements = math.prod(size.dim_value or batch for size in tensor.shape.dim)
        found[value.name] = Extent(elements, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize)
    return found


def feature_maps(proto: Proto, extents: Mapping[str, Extent]) -> list[FeatureMap]:
    """The feature maps of the network, in the order in which they are created."""
    graph = proto.graph
    constants = _constants(graph)
    images = {value.name for value in graph.input}  # they belong to the caller, which passes them as they are
    owner = {name: name for name in images}
    moving = [(at, node) for at, node in enumerate(graph.node) if node.output[0] not in constants]
    for _, node in moving:
        source = next((name for name in node.input if name in owner), "")
        is_same = source and (node.op_type in VIEWS or (node.op_type in QUANTISING and source not in images))
        for name in node.output:
            owner[name] = owner[source] if is_same else name
    last = _last_reads(moving, owner, graph)
    first = dict.fromkeys(images, 0)
    for at, node in moving:
        for name in {owner[name] for name in node.output if owner[name] not in first}:
            first[name] = at
    taken_over = _taken_over(moving, owner, last, extents)
    quantised = {node.output[0] for _, node in moving if node.op_type == "QuantizeLinear"}
    members: dict[str, list[str]] = {}
    for name, own in owner.items():
        members.setdefault(_root(own, taken_over), []).append(name)
    return [
        FeatureMap(
            tuple(names),
            min(first[owner[name]] for name in names),
            max(last[owner[name]] for name in names),
            not quantised.isdisjoint(names),
        )
        for names in members.values()
    ]


def _taken_over(
    moving: Sequence[tuple[int, Node]],
    owner: Mapping[str, str],
    last: Mapping[str, int],
    extents: Mapping[str, Extent],
) -> dict[str, str]:
    """Feature maps that overwrite another one, each with the one that it overwrites."""
    found: dict[str, str] = {}
    for at, node in moving:
        made = node.output[0]
        if node.op_type not in BY_ELEMENT or owner[made] != made:
            continue
        read = [owner[name] for name in node.input if name in owner]
        dying = [name for name in read if last[name] == at and extents.get(name) == extents.get(made)]
        if dying:
            found[made] = _root(dying[0], found)
    return found


def _root(name: str, shared: Mapping[str, str]) -> str:
    while name in shared:
        name = shared[name]
    return name


def _last_reads(moving: Sequence[tuple[int, Node]], owner: Mapping[str, str], graph: Any) -> dict[str, int]:  # noqa: ANN401 - onnx.GraphProto
    """The last node that reads each feature map; the network's output is held to the end."""
    last = {value.name: 0 for value in graph.input}
    for at, node in moving:
        last.update({owner[name]: at for name in (*node.input, *node.output) if name in owner})
    last.update({owner[value.name]: len(graph.node) - 1 for value in graph.output})
    return last


def _constants(graph: Any) -> set[str]:  # noqa: ANN401 - onnx.GraphProto
    """Names of the tensors that do not depend on the image."""
    found = {tensor.name for tensor in graph.initializer} | {""}
    for node in graph.node:
        if all(name in found for name in node.input):
            found.update(node.output)
    return found
