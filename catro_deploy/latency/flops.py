"""Multiply-accumulates of a network as its groups' widths change: the paper's cost, not a measure of time.

A layer's multiply-accumulates are ``positions * kernel * in * out``. In a grouped convolution ``in`` is the number of
inputs of one convolution group, which is the same at all widths, because whole convolution groups are removed; a
depthwise layer's are ``positions * kernel * out``.
Attention, recurrent layers and products of feature maps are counted as they are in the unpruned network.
Other operations (normalisation, activation, addition, pooling) are not counted, as is customary.
"""

from collections.abc import Sequence

from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.records import Group, Layer

__all__ = ["FlopsCost"]


class FlopsCost(LayerCost):
    """A CostModel in multiply-accumulates for one image; ``others``, outside ``layers``, are constant."""

    def __init__(self, layers: Sequence[Layer], groups: Sequence[Group], others: int = 0) -> None:
        super().__init__(layers, groups, _macs, overhead=others)


def _macs(layer: Layer, in_width: int, out_width: int) -> float:
    inputs = layer.in_channels // layer.groups if layer.groups > 1 else in_width
    return layer.positions * layer.kernel * inputs * out_width
