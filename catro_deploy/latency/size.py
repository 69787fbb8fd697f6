"""The bytes of the ONNX file at given widths: each layer's weights take the product of its two widths."""

from collections.abc import Sequence

from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.records import Group, Layer

__all__ = ["WEIGHT", "SizeCost"]

# Bytes of one weight, and of the bias of one output channel; in int8 with its scales and zero points.
WEIGHT = {"fp32": 4, "fp16": 2, "int8": 1}
OUTPUT = {"fp32": 4, "fp16": 2, "int8": 4 + 4 + 1 + 4}


class SizeCost(LayerCost):
    """A CostModel in bytes of the file in ``precision``; the file of the unpruned network has ``full_bytes``.

    It does not know which layers share a weight or are partly in another precision. Everything in the file except
    weights and biases is assumed not to change.
    """

    def __init__(self, layers: Sequence[Layer], groups: Sequence[Group], precision: str, full_bytes: int) -> None:
        def weights(layer: Layer, in_width: int, out_width: int) -> float:
            inputs = layer.in_channels // layer.groups if layer.groups > 1 else in_width
            return WEIGHT[precision] * layer.kernel * inputs * out_width + OUTPUT[precision] * out_width

        full = {group.name: group.width for group in groups}
        known = LayerCost(layers, groups, weights).predict(full)
        super().__init__(layers, groups, weights, overhead=full_bytes - known)
