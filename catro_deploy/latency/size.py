"""What widths cost in bytes of the ONNX file: the product of both widths for each layer's weights."""

from collections.abc import Sequence

from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.records import Group, Layer

__all__ = ["WEIGHT", "SizeCost"]

# Bytes of one weight; and of the bias of one output, in integers with scales and zeros.
WEIGHT = {"fp32": 4, "fp16": 2, "int8": 1}
OUTPUT = {"fp32": 4, "fp16": 2, "int8": 4 + 4 + 1 + 4}


class SizeCost(LayerCost):
    """A CostModel in bytes of the file in a ``precision``, of which the whole network's has ``full_bytes``.

    Layers that share a weight, and those of which a part is in another precision, are not known to it; what the file
    has beside weights is taken to stay.
    """

    def __init__(self, layers: Sequence[Layer], groups: Sequence[Group], precision: str, full_bytes: int) -> None:
        def weights(layer: Layer, in_width: int, out_width: int) -> float:
            inputs = layer.in_channels // layer.groups if layer.groups > 1 else in_width
            return WEIGHT[precision] * layer.kernel * inputs * out_width + OUTPUT[precision] * out_width

        full = {group.name: group.width for group in groups}
        known = LayerCost(layers, groups, weights).predict(full)
        super().__init__(layers, groups, weights, overhead=full_bytes - known)
