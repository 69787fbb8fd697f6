"""A network's cost as the sum of its layers' costs, each a function of the layer's widths in and out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from catro_deploy.catro.gains import CostTables
from catro_deploy.errors import BudgetError
from catro_deploy.records import Group, Layer

__all__ = ["LayerCost"]

CACHED_PRICES = 2**17


@dataclass(frozen=True)
class _Axis:
    """Channels on one side of a layer: ``fixed`` ones, and a number of them per channel of each group on that side."""

    fixed: int
    per_channel: tuple[tuple[str, int], ...]

    def width(self, widths: Mapping[str, int]) -> int:
        return self.fixed + sum(share * widths[group] for group, share in self.per_channel)


class LayerCost:
    """A CostModel that adds up ``layer_cost(layer, in_width, out_width)`` over ``layers``.

    These widths count the layer's own channels, over all its convolution groups. Each channel of a group maps to the
    same number of them: to all positions in a flattened map, to a whole convolution group in a grouped convolution. A
    layer without inputs or outputs costs nothing; other costs are cached, so ``layer_cost`` may be slow but must be
    deterministic. ``overhead`` is the cost that does not depend on widths.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        groups: Sequence[Group],
        layer_cost: Callable[[Layer, int, int], float],
        *,
        overhead: float = 0.0,
    ) -> None:
        self._overhead = overhead
        self._axes = {layer.name: _axes(layer, groups) for layer in layers}
        self._met = {name: _groups_of(axes) for name, axes in self._axes.items()}
        self._touched = {group.name: [name for name, met in self._met.items() if group.name in met] for group in groups}
        self._neighbours = {
            group: tuple(dict.fromkeys(chain([group], *(self._met[name] for name in names))))
            for group, names in self._touched.items()
        }
        by_name = {layer.name: layer for layer in layers}
        self._price = lru_cache(CACHED_PRICES)(lambda name, inputs, outputs: layer_cost(by_name[name], inputs, outputs))

    def predict(self, widths: Mapping[str, int]) -> float:
        """Cost of the whole network; ``widths`` has every group."""
        return self._overhead + sum(self._cost(name, widths) for name in self._axes)

    def change(self, widths: Mapping[str, int], group: str, width: int) -> float:
        """Cost added by setting ``group`` to ``width``."""
        changed = {**widths, group: width}
        return sum(self._cost(name, changed) - self._cost(name, widths) for name in self._touched[group])

    def neighbours(self, group: str) -> Sequence[str]:
        """Groups that share a layer with ``group``, itself first."""
        return self._neighbours[group]

    def touched(self, group: str) -> Sequence[str]:
        """Names of the layers whose widths change with ``group``."""
        return self._touched[group]

    def layer_widths(self, widths: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Channels in and out of each layer."""
        return {name: (inputs.width(widths), outputs.width(widths)) for name, (inputs, outputs) in self._axes.items()}

    def by_layer(self, widths: Mapping[str, int]) -> dict[str, float]:
        """Cost of each layer; 0 for a removed one."""
        return {name: self._cost(name, widths) for name in self._axes}

    def tables(self, candidates: Mapping[str, Sequence[int]]) -> CostTables:
        """Tables of the cost over ``candidates``, which has every group, as a sum over groups and pairs of groups.

        Raises:
            BudgetError: a layer depends on more than two groups.
        """
        constant = self._overhead
        single = {group: np.zeros(len(widths)) for group, widths in candidates.items()}
        pair: dict[tuple[str, str], NDArray[np.float64]] = {}
        for name in self._axes:
            match [group for group in candidates if group in self._met[name]]:
                case []:
                    constant += self._cost(name, {})
                case [one]:
                    single[one] += [self._cost(name, {one: width}) for width in candidates[one]]
                case [one, other]:
                    costs = [
                        [self._cost(name, {one: width, other: width_of_other}) for width_of_other in candidates[other]]
                        for width in candidates[one]
                    ]
                    pair[one, other] = pair.get((one, other), 0.0) + np.array(costs)
                case several:
                    raise BudgetError(
                        f"The widths of {len(several)} groups meet in {name}: {', '.join(several)}. The exact "
                        "allocation handles pairs only.",
                        "Use the greedy allocation (--allocation greedy).",
                    )
        return CostTables(constant, single, pair)

    def rows(self, candidates: Mapping[str, Sequence[int]]) -> Sequence[CostTables]:
        """``tables`` as the only row of a linear program.

        Raises:
            BudgetError: a layer depends on more than two groups.
        """
        return (self.tables(candidates),)

    def _cost(self, name: str, widths: Mapping[str, int]) -> float:
        inputs, outputs = self._axes[name]
        in_width, out_width = inputs.width(widths), outputs.width(widths)
        return self._price(name, in_width, out_width) if in_width and out_width else 0.0


def _axes(layer: Layer, groups: Sequence[Group]) -> tuple[_Axis, _Axis]:
    """The layer's input axis and output axis."""
    prunable: dict[str, dict[str, set[int]]] = {"in": {}, "out": {}}
    width = {group.name: group.width for group in groups}
    for group in groups:
        for slot in group.slots:
            if slot.module == layer.name:
                prunable[slot.axis].setdefault(group.name, set()).update(slot.index)
    inputs, outputs = (
        _Axis(
            channels - sum(len(indices) for indices in prunable[side].values()),
            tuple((group, len(indices) // width[group]) for group, indices in prunable[side].items()),
        )
        for side, channels in (("in", layer.in_channels), ("out", layer.out_channels))
    )
    return inputs, outputs


def _groups_of(axes: tuple[_Axis, _Axis]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(group for axis in axes for group, _ in axis.per_channel))
