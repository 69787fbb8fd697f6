"""ONNX files of a chosen size, for tests of code that reads them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def write_conv_chain(
    path: Path,
    *,
    layers: int = 1,
    channels: int = 8,
    size: int = 8,
    batch: int | str = 1,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """``layers`` 3x3 convolutions from 3 to ``channels`` to ... ``channels``, then the mean over positions."""
    generator = np.random.default_rng(0)
    nodes, weights, last, inputs = [], [], "image", 3
    for i in range(layers):
        weight = generator.standard_normal((channels, inputs, 3, 3)).astype(np.float32) / (3 * inputs**0.5)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"y{i}"], pads=[1, 1, 1, 1]))
        last, inputs = f"y{i}", channels
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["logits"]))
    return write_graph(path, nodes, weights, [batch, 3, size, size], [batch, channels], metadata)


def write_linear(path: Path, weights: np.ndarray) -> Path:
    """A network that multiplies flattened images by ``weights`` (pixels, classes), for any batch size."""
    nodes = [helper.make_node("Flatten", ["image"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["logits"])]
    pixels, classes = weights.shape
    tensors = [numpy_helper.from_array(weights, "w")]
    return write_graph(path, nodes, tensors, ["batch", 1, pixels, 1], ["batch", classes])


def write_graph(
    path: Path,
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    takes: list[int | str],
    gives: list[int | str],
    metadata: Mapping[str, str] | None = None,
    *,
    gives_name: str = "logits",
) -> Path:
    """A graph with the input ``image`` of shape ``takes`` and the output ``gives_name`` of shape ``gives``."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("image", FLOAT, takes)],
        [helper.make_tensor_value_info(gives_name, FLOAT, gives)],
        weights,
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("nobody.has.this", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    helper.set_model_props(model, dict(metadata or {}))
    onnx.save(model, path)
    return path


def write_after_conv(
    folder: Path, nodes: list[onnx.NodeProto], constants: Mapping[str, np.ndarray], logits: list[int], size: int = 4
) -> onnx.ModelProto:
    """A network of ``nodes`` that read ``features``, the 8 channels that the convolution ``first`` outputs."""
    weights = {"first.weight": np.ones((8, 3, 1, 1), np.float32), **constants}
    first = helper.make_node("Conv", ["image", "first.weight"], ["features"])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    return onnx.load(write_graph(folder / "made.onnx", [first, *nodes], tensors, [1, 3, size, size], logits))
