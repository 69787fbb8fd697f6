"""A quantised network as a trainable module: the served graph, with fake quantisation.

The graph of ``quantised`` is computed node by node in PyTorch. Q/DQ pairs round in the same way; gradients pass
through the rounding unchanged, except for values outside the range (the straight-through estimator, as in Jacob et al.
(2018), "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference"). Ranges of
activations stay as calibrated; the scale of weights follows the largest weight. Batch norm has been folded, so its
statistics do not change.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn

from catro_deploy.errors import ModelError
from catro_deploy.precision.graph import WEIGHTED
from catro_deploy.precision.torch_operators import OPERATORS, compute

__all__ = ["Aware", "aware"]

Proto = Any
"""An onnx.ModelProto, which has no annotations."""

LIMITS = {np.dtype(np.int8): (-128, 127), np.dtype(np.uint8): (0, 255)}
# The scale of channels whose weights are all 0.
LEAST_SCALE = 1e-12


@dataclass(frozen=True)
class Aware:
    """``network`` maps any number of normalised images (n, c, h, w) to logits (n, classes).

    Its parameters are the weights and biases of all layers, including those that stay in float32; ``names`` are their
    names in the ONNX file.
    """

    network: fx.GraphModule
    names: tuple[str, ...]

    def parameter(self, name: str) -> nn.Parameter:
        """The parameter with this ``name`` in the ONNX file."""
        return self.network.get_parameter(f"weights.{self.names.index(name)}")

    def trained(self, source: Proto) -> Proto:
        """A copy of ``source``, the network in float32, with these weights."""
        from onnx import numpy_helper

        found = copy.deepcopy(source)
        for tensor in found.graph.initializer:
            if tensor.name in self.names:
                values = self.parameter(tensor.name).detach().cpu().contiguous().numpy()
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        return found


def aware(source: Proto, integers: Proto) -> Aware:
    """``integers``, the quantised ``source``, as a trainable module.

    Raises:
        ModelError: one of its operators cannot be trained.
    """
    operators = {node.op_type for node in integers.graph.node} - {"QuantizeLinear", "DequantizeLinear"}
    if unknown := sorted(operators - OPERATORS.keys()):
        raise ModelError(
            f"This network does not support quantisation-aware fine-tuning: {', '.join(unknown)} cannot be trained.",
            "Skip it: --qat-epochs 0",
        )
    return _Builder(source, integers).build()


def rounded_weights(weights: torch.Tensor, largest: int, axis: int | None) -> torch.Tensor:
    """``weights`` rounded to a scale: the largest magnitude, per slice of ``axis`` if given, divided by ``largest``."""
    zeros = torch.zeros(1 if axis is None else weights.shape[axis], dtype=torch.int32, device=weights.device)
    others = [other for other in range(weights.ndim) if other != axis]
    scale = (weights.detach().abs().amax(others) / largest).clamp_min(LEAST_SCALE).reshape(-1)
    if axis is None:
        return torch.fake_quantize_per_tensor_affine(weights, scale, zeros, -largest, largest)
    return torch.fake_quantize_per_channel_affine(weights, scale, zeros, axis, -largest, largest)


class _Builder:
    """Translates the nodes in order; ``values`` holds those known so far, by name in the ONNX file."""

    def __init__(self, source: Proto, integers: Proto) -> None:
        from onnx import numpy_helper

        self.integers = integers
        self.arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in integers.graph.initializer}
        floats = {tensor.name: numpy_helper.to_array(tensor) for tensor in source.graph.initializer}
        layers = [node for node in source.graph.node if node.op_type in WEIGHTED]
        self.floats = {name: floats[name] for node in layers for name in node.input[1:3] if name in floats}
        self.names = tuple(self.floats)
        self.root, self.graph = nn.Module(), fx.Graph()
        self.root.weights = nn.ParameterList(nn.Parameter(torch.tensor(array)) for array in self.floats.values())
        self.values: dict[str, fx.Node | list[int]] = {}

    def build(self) -> Aware:
        graph = self.integers.graph
        self.values[graph.input[0].name] = self.graph.placeholder("images")
        for node in graph.node:
            if node.op_type == "QuantizeLinear":
                self.values[node.output[0]] = self._rounded(node)
            elif node.op_type == "DequantizeLinear":
                self.values[node.output[0]] = self._restored(node)
            else:
                self._compute(node)
        self.graph.output(self.values[graph.output[0].name])
        return Aware(fx.GraphModule(self.root, self.graph), self.names)

    def _rounded(self, node: Any) -> fx.Node:  # noqa: ANN401 - onnx.NodeProto
        """Fake quantisation at a QuantizeLinear; its DequantizeLinear is then an identity."""
        value, (scale, zero_point) = node.input[0], (self.arrays[name] for name in node.input[1:3])
        if value in self.floats:
            return self._weights(value, scale, _axis(node))
        rounding = (float(scale), int(zero_point), *LIMITS[zero_point.dtype])
        return self.graph.call_function(torch.fake_quantize_per_tensor_affine, (self._value(value), *rounding))

    def _restored(self, node: Any) -> fx.Node | list[int]:  # noqa: ANN401 - as above
        if node.input[0] not in self.arrays:
            return self._value(node.input[0])
        stored, scale = (self.arrays[name] for name in node.input[:2])
        # The name that onnxruntime.quantization gives to quantised tensors.
        name = node.input[0].removesuffix("_quantized")
        if name in self.floats:
            return self._weights(name, scale, _axis(node)) if stored.dtype == np.int8 else self._parameter(name)
        zero_point = self.arrays[node.input[2]] if len(node.input) > 2 else np.zeros_like(stored, shape=())
        return self._constant((stored.astype(np.float32) - zero_point.astype(np.float32)) * scale)

    def _weights(self, name: str, scale: NDArray[np.float32], axis: int | None) -> fx.Node:
        """Fake-quantised weights, in seven or eight bits depending on the scale."""
        array = self.floats[name]
        others = tuple(other for other in range(array.ndim) if other != axis)
        largest = round(float((np.abs(array).max(axis=others if scale.size > 1 else None) / scale).max()))
        return self.graph.call_function(
            rounded_weights, (self._parameter(name), largest, axis if scale.size > 1 else None)
        )

    def _compute(self, node: Any) -> None:  # noqa: ANN401 - as above
        from onnx import helper

        attributes = {one.name: _plain(helper.get_attribute_value(one)) for one in node.attribute}
        inputs = [self._value(name) if name else None for name in node.input]
        found = self.graph.call_function(compute, (node.op_type, inputs, attributes))
        if len(node.output) == 1:
            self.values[node.output[0]] = found
            return
        for place, name in enumerate(node.output):
            self.values[name] = self.graph.call_function(_item, (found, place))

    def _value(self, name: str) -> fx.Node | list[int]:
        if name not in self.values:
            if name in self.floats:
                return self._parameter(name)
            array = self.arrays[name]
            floating = array.dtype == np.float32
            self.values[name] = self._constant(array) if floating else [int(one) for one in array.reshape(-1)]
        return self.values[name]

    def _parameter(self, name: str) -> fx.Node:
        return self.graph.get_attr(f"weights.{self.names.index(name)}")

    def _constant(self, array: NDArray[np.float32]) -> fx.Node:
        name = f"constant_{sum(1 for _ in self.root.buffers())}"
        self.root.register_buffer(name, torch.tensor(array))
        return self.graph.get_attr(name)


def _item(values: tuple[torch.Tensor, ...], place: int) -> torch.Tensor:
    return values[place]


def _axis(node: Any) -> int:  # noqa: ANN401 - as above
    return next((int(one.i) for one in node.attribute if one.name == "axis"), 1)


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever an attribute of ONNX may be
    """The value in a form that ``torch.fx`` accepts."""
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if isinstance(value, Mapping | list | tuple) or hasattr(value, "append") else value
