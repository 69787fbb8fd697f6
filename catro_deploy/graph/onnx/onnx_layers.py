"""Which nodes of an ONNX network belong to which layer of the module that it was exported from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Node", "describe", "int_of", "ints_of", "layer_of", "modules_of", "name_nodes_", "text_of", "weight_of"]

Node = Any
"""An onnx.NodeProto, which has no annotations."""
Arrays = Mapping[str, NDArray[Any]]
"""The constants of a network."""

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
SEPARATOR = "::"
# ONNX Runtime prepends this to the name of a matrix product that is fused with its activation.
FUSED = "fused "
# Least cosine of the angle between weights of one output before and after scaling, in float32.
PARALLEL = 1 - 1e-6


def layer_of(name: str) -> str | None:
    """The layer that a node belongs to, by the node's name or that of its output."""
    layer, separator, _ = name.removeprefix(FUSED).partition(SEPARATOR)
    return layer if separator else None


def weight_of(node: Node, arrays: Arrays) -> str | None:
    """Name of the constant that is the weight of a convolution or matrix product; None if ``node`` is neither."""
    is_weighted = node.op_type in WEIGHTED and node.input[1] in arrays and arrays[node.input[1]].ndim > 1
    return str(node.input[1]) if is_weighted else None


def modules_of(graph: Any, arrays: Arrays, modules: Mapping[str, Any], weights: Arrays) -> dict[str, str]:  # noqa: ANN401 - onnx.GraphProto
    """The module (or parameter outside modules) that each weight belongs to, as far as it is known.

    The exporter keeps the names of most weights, but renames others and keeps only the names of their biases, as for a
    linear layer on maps. ``weights`` holds the weights of the layers by name, to find the rest by value.
    """
    found: dict[str, str] = {}
    for node in graph.node:
        name = weight_of(node, arrays)
        if name is None:
            continue
        bias = str(node.input[2]) if len(node.input) > 2 else ""
        named = (name.removesuffix(".weight"), bias.removesuffix(".bias"), name)
        module = next((one for one in named if one in modules), None) or _by_value(arrays[name], weights)
        if module is not None:
            found[name] = module
    return found


def _by_value(array: NDArray[Any], weights: Arrays) -> str | None:
    """The layer with this weight, which may be transposed, or scaled by a factor for each output."""
    for name, weight in weights.items():
        if weight.size == array.size and (np.array_equal(weight.T, array) or _is_scaled(weight, array)):
            return name
    return None


def _is_scaled(weight: NDArray[Any], array: NDArray[Any]) -> bool:
    if weight.shape != array.shape or weight[0].size == 1:
        return bool(np.array_equal(weight, array))
    one, other = (rows.reshape(len(rows), -1).astype(np.float64) for rows in (weight, array))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return bool(np.all(np.abs((one * other).sum(axis=1)) > PARALLEL * lengths))


def name_nodes_(graph: Any, modules: Mapping[str, str], arrays: Arrays) -> dict[str, tuple[str, ...]]:  # noqa: ANN401 - onnx.GraphProto
    """Name nodes and tensors after their layers; return what each layer's nodes do, in the order of execution.

    ``modules`` has the module of each weight. A node without one belongs to the layer whose output it works on. The
    network's output is renamed, too, since OpenVINO names the last node after it.
    """
    layers = {node.output[0]: modules.get(str(weight_of(node, arrays))) for node in graph.node}
    first = next((layer for layer in layers.values() if layer), "the image")
    owners: dict[str, str] = {}
    renamed: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for place, node in enumerate(graph.node):
        layer = layers[node.output[0]] or next((owners[name] for name in node.input if name in owners), first)
        found.setdefault(layer, []).append(describe(node))
        node.name = f"{layer}{SEPARATOR}{place}"
        owners.update(dict.fromkeys(node.output, layer))
        for i, name in enumerate(node.output):
            renamed.setdefault(name, f"{node.name}.{i}")
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    for output in graph.output:
        output.name = renamed.get(output.name, output.name)
    return {layer: tuple(types) for layer, types in found.items()}


def describe(node: Node) -> str:
    """The operator and its window, such as ``Conv 3x3 strides 2x2``."""
    sizes = {attribute.name: tuple(attribute.ints) for attribute in node.attribute}
    words = [node.op_type]
    if "kernel_shape" in sizes:
        words.append("x".join(map(str, sizes["kernel_shape"])))
    for name in ("strides", "dilations"):
        if set(sizes.get(name, ())) - {1}:
            words += [name, "x".join(map(str, sizes[name]))]
    return " ".join(words)


def int_of(node: Node, name: str, default: int = 0) -> int:
    """An integer among the attributes of ``node``; ``default`` if it has no such attribute."""
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), default)


def ints_of(node: Node, name: str) -> list[int]:
    """A list of integers among the attributes of ``node``; empty if it has no such attribute."""
    return next((list(attribute.ints) for attribute in node.attribute if attribute.name == name), [])


def text_of(node: Node, name: str) -> str:
    """A string among the attributes of ``node``; empty if it has no such attribute."""
    return next((attribute.s.decode() for attribute in node.attribute if attribute.name == name), "")
