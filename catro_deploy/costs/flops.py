"""Multiply-accumulates of a network as its groups' widths change: the paper's cost. Caveat: not a measure of time.

A layer's multiply-accumulates are ``positions * kernel * in * out``; a depthwise layer's ``positions * kernel * out``.
Other operations (normalisation, activation, addition, pooling) are not counted, as is the custom of the field.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from catro_deploy.records import Group, Layer

__all__ = ["FlopsCost"]


@dataclass(frozen=True)
class _Axis:
    """Channels of one side of a layer: ``fixed`` ones, and so many for each channel of the groups on it."""

    fixed: float
    per_channel: Mapping[str, float]

    def width(self, widths: Mapping[str, int]) -> float:
        return self.fixed + sum(share * widths[group] for group, share in self.per_channel.items())


class FlopsCost:
    """A CostModel in multiply-accumulates for one image."""

    def __init__(self, layers: Sequence[Layer], groups: Sequence[Group]) -> None:
        self._layers = {layer.name: layer for layer in layers}
        self._axes: dict[str, tuple[_Axis, _Axis]] = {}
        self._touched: dict[str, list[str]] = {}
        shares: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for group in groups:
            for slot in group.slots:
                if slot.module in self._layers:
                    shares[slot.module, slot.axis][group.name] = len(slot.index) / group.width
        width = {group.name: group.width for group in groups}
        for name, layer in self._layers.items():
            self._axes[name] = (
                _axis(layer.in_channels, shares[name, "in"], width),
                _axis(layer.out_channels, shares[name, "out"], width),
            )
        for group in groups:
            self._touched[group.name] = [
                n for n, axes in self._axes.items() if any(group.name in a.per_channel for a in axes)
            ]

    def predict(self, widths: Mapping[str, int]) -> float:
        """Multiply-accumulates of the whole network; ``widths`` names every group."""
        return sum(self._layer(name, widths) for name in self._layers)

    def change(self, widths: Mapping[str, int], group: str, width: int) -> float:
        """Multiply-accumulates added by setting ``group`` to ``width``."""
        changed = {**widths, group: width}
        return sum(self._layer(name, changed) - self._layer(name, widths) for name in self._touched[group])

    def neighbours(self, group: str) -> Sequence[str]:
        """Groups that meet ``group`` in some layer, itself among them."""
        found = {group: None}
        for name in self._touched[group]:
            for axis in self._axes[name]:
                found.update(dict.fromkeys(axis.per_channel))
        return list(found)

    def _layer(self, name: str, widths: Mapping[str, int]) -> float:
        layer, (inputs, out) = self._layers[name], self._axes[name]
        if layer.groups > 1:
            per_output = layer.in_channels // layer.groups
            return layer.positions * layer.kernel * per_output * out.width(widths)
        return layer.positions * layer.kernel * inputs.width(widths) * out.width(widths)


def _axis(channels: int, per_channel: Mapping[str, float], width: Mapping[str, int]) -> _Axis:
    return _Axis(channels - sum(share * width[group] for group, share in per_channel.items()), per_channel)
