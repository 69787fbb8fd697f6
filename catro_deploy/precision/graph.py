"""Helpers for changing the precision of an ONNX network: all its values, its layers by name, its nodes in order."""

import copy
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import ModelError

__all__ = [
    "Observer",
    "images_at_a_time",
    "importable_tools",
    "layers_of",
    "pieces",
    "present",
    "reading_only",
    "require_float",
    "sort_",
]

Floats = NDArray[np.float32]

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
INTEGER_OPERATORS = ("QuantizeLinear", "DequantizeLinear", "QLinear", "QGemm", "ConvInteger", "MatMulInteger")


class Observer:
    """Computes every value of ``proto`` (an onnx.ModelProto) in ONNX Runtime, without fusing any nodes."""

    def __init__(self, proto: Any) -> None:  # noqa: ANN401 - onnx has no annotations
        import onnx
        import onnxruntime

        whole = onnx.shape_inference.infer_shapes(proto)
        known = {value.name for value in whole.graph.output}
        whole.graph.output.extend(value for value in whole.graph.value_info if value.name not in known)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            whole.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._input = str(proto.graph.input[0].name)
        self._names = [output.name for output in self._session.get_outputs()]

    def values(self, images: Floats) -> dict[str, NDArray[Any]]:
        """The input and the outputs of every node, by name."""
        found = self._session.run(self._names, {self._input: images})
        return {self._input: images} | dict(zip(self._names, found, strict=True))


@contextmanager
def importable_tools() -> Iterator[None]:
    """Make onnxruntime.quantization and .transformers importable in the block, and leave ``sys.path`` as it was.

    Some of their modules import each other as if the latter's folder were in ``sys.path``; it adds itself there only
    when it is first imported.
    """
    before = list(sys.path)
    import onnxruntime.transformers

    sys.path.append(onnxruntime.transformers.__path__[0])
    try:
        yield
    finally:
        sys.path[:] = before


def pieces(proto: Any, images: Floats) -> list[Floats]:  # noqa: ANN401 - as above
    """``images`` in batches of the network's batch size, or of one if it takes any number; the remainder is dropped."""
    size = images_at_a_time(proto) or 1
    return [images[start : start + size] for start in range(0, len(images) - size + 1, size)]


def images_at_a_time(proto: Any) -> int | None:  # noqa: ANN401 - as above
    """How many images the network takes at a time; None if any number."""
    return proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value or None


def layers_of(graph: Any) -> dict[str, str]:  # noqa: ANN401 - onnx.GraphProto
    """The convolutions and matrix products with weights, in execution order: layer name to node name.

    A layer is named after the module of its weights or, where the exporter has renamed those, of its bias.
    """
    constants = {tensor.name for tensor in graph.initializer}
    found: dict[str, str] = {}
    for node in graph.node:
        if node.op_type not in WEIGHTED or node.input[1] not in constants:
            continue
        bias = node.input[2] if len(node.input) > 2 else ""
        named = [(node.input[1], ".weight"), (bias, ".bias")]
        layer = next((name.removesuffix(end) for name, end in named if name.endswith(end)), node.name)
        found[layer if layer not in found else node.name] = node.name
    return found


def reading_only(graph: Any, layers: Collection[str]) -> list[str]:  # noqa: ANN401 - as above
    """Node names of the operators that are no layers and read only ``layers``, directly or through such operators.

    The nodes of ``graph`` are in execution order.
    """
    names = {node: layer for layer, node in layers_of(graph).items()}
    read: dict[str, set[str]] = {}
    found = []
    for node in graph.node:
        sources = set[str]().union(*(read.get(name, set()) for name in node.input))
        if node.name in names:
            sources = {names[node.name]}
        elif sources and sources.issubset(layers):
            found.append(str(node.name))
        read.update(dict.fromkeys(node.output, sources))
    return found


def present(layers: Iterable[str], graph: Any) -> list[str]:  # noqa: ANN401 - as above
    """Those of ``layers`` that exist in ``graph``: a recipe may have been made for another network."""
    found = layers_of(graph)
    return [layer for layer in layers if layer in found]


def require_float(proto: Any, name: str) -> None:  # noqa: ANN401 - as above
    """Require that ``proto`` is not quantised yet.

    Raises:
        ModelError: it is quantised already.
    """
    integer = [node.op_type for node in proto.graph.node if node.op_type.startswith(INTEGER_OPERATORS)]
    if integer:
        raise ModelError(
            f"{name} is quantised already: {len(integer)} of its nodes are {', '.join(sorted(set(integer)))}.",
            "Quantise the network in float32: catro-deploy export writes it.",
        )


def sort_(graph: Any) -> None:  # noqa: ANN401 - as above
    """Sort nodes topologically; drop nodes and constants that are not read."""
    made_by = {name: node for node in graph.node for name in node.output}
    place = {node.output[0]: number for number, node in enumerate(graph.node)}
    ordered: dict[str, Any] = {}
    waiting = [made_by[value.name] for value in graph.output]
    while waiting:
        node = waiting[-1]
        makers = [made_by[name] for name in node.input if name in made_by]
        missing = [maker for maker in makers if maker.output[0] not in ordered]
        if missing:
            waiting += sorted(missing, key=lambda maker: -place[maker.output[0]])
        else:
            ordered.setdefault(node.output[0], copy.deepcopy(waiting.pop()))
    del graph.node[:]
    graph.node.extend(ordered.values())
    read = {name for node in ordered.values() for name in node.input}
    constants = [copy.deepcopy(tensor) for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(constants)
