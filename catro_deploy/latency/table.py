"""Latency of a network from measured times of its layers, and a correction for what such times miss.

A cell holds the time of one layer, measured among its neighbours, at one pair of widths. Profiling adds some time to
each node, and the runtime to each inference. Networks timed as a whole, without profiling, give the correction:

    latency = fixed + sum over layers of (slope * time + per_node * nodes)

The three numbers are fitted on networks that were timed as a whole, and evaluated on held-out ones.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import ProfileError
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.records import CostErrors, Group, Layer, Staircase

__all__ = ["Cell", "Fit", "LayerTable", "TableCost", "fit_whole", "layer_shape", "prediction_errors"]

# Lower bound of a layer's time, however much profiling adds to the measured one.
LEAST_US = 0.05
# Relative errors beyond this weigh less in the fit: they are due to disturbed measurements, not to the networks.
OUTLYING = 0.05
# Relative tolerance of the solver.
TOLERANCE = 1e-10
# Prior standard deviations of the three terms, as shares of the latency.
SPREAD = (0.2, 0.2, 0.1)
# Factor from the median of absolute errors to their standard deviation, if errors are normally distributed.
TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Cell:
    """Median time of a layer at one pair of widths, its share of nodes, and the spread of ``samples`` times."""

    us: float
    nodes: float
    spread: float
    samples: int


@dataclass(frozen=True)
class Fit:
    """How the times of layers add up to the latency of a network."""

    slope: float
    per_node_us: float
    fixed_us: float


LayerTable = Mapping[str, Mapping[tuple[int, int], Cell]]
"""Cells by a layer's shape and its widths (in, out)."""


def layer_shape(layer: Layer, operators: Sequence[str]) -> str:
    """What determines a layer's time besides its widths; layers of the same shape share their cells."""
    kind = f"{layer.groups} groups" if layer.groups > 1 else "dense"
    size = f"kernel {layer.kernel} stride {layer.stride} positions {layer.positions}"
    return f"{kind} {size} {layer.in_channels}->{layer.out_channels} {'+'.join(operators)}"


class TableCost(LayerCost):
    """A CostModel in microseconds, from measured cells.

    ``shapes`` gives each layer's shape. Widths without a cell take the time of the nearest cell, scaled by the ratio of
    multiply-accumulates and, if the group's staircase is known, by how far it is above that proportion there: 15
    channels may take longer than 16. ``estimated`` names such layers.

    Raises:
        ProfileError: a layer has no cell at all.
    """

    how = "measured"

    def __init__(
        self,
        layers: Sequence[Layer],
        groups: Sequence[Group],
        shapes: Mapping[str, str],
        cells: LayerTable,
        fit: Fit,
        staircases: Mapping[str, Staircase] | None = None,
    ) -> None:
        for layer in layers:
            if not cells.get(shapes.get(layer.name, "")):
                raise ProfileError(
                    f"The latency profile has no measurement of {layer.name}: it belongs to another network.",
                    "Measure this network: catro-deploy profile --force",
                )
        self._cells = {layer.name: cells[shapes[layer.name]] for layer in layers}
        self._fit = fit
        self._staircases = staircases or {}
        super().__init__(layers, groups, self._latency_us, overhead=fit.fixed_us)

    def estimated(self, widths: Mapping[str, int]) -> list[str]:
        """Layers without a measurement at these widths."""
        at = self.layer_widths(widths)
        return [name for name, pair in at.items() if all(pair) and pair not in self._cells[name]]

    def _latency_us(self, layer: Layer, in_width: int, out_width: int) -> float:
        cells = self._cells[layer.name]
        widths = (in_width, out_width)
        nearest = widths if widths in cells else min(cells, key=lambda pair: _distance(pair, widths))
        share = widths[1] / nearest[1] * (1 if layer.groups > 1 else widths[0] / nearest[0])
        share *= self._above_proportion(layer, widths) if nearest != widths else 1.0
        cell = cells[nearest]
        return max(LEAST_US, self._fit.slope * cell.us * share + self._fit.per_node_us * cell.nodes)

    def _above_proportion(self, layer: Layer, widths: tuple[int, int]) -> float:
        """The larger factor of both sides; only sides with a single group, not at an efficient width, have one.

        Not the product: in the sweep that measured the staircase both sides widened together.
        """
        factors = []
        for axis, width in zip(self._axes[layer.name], widths, strict=True):
            match axis.per_channel:
                case [(group, channels)] if group in self._staircases:
                    stairs, units = self._staircases[group], (width - axis.fixed) // channels
                    if units and units not in stairs.candidates:
                        factors.append(_swept_factor(stairs, units))
        return max(factors, default=1.0)


def _swept_factor(stairs: Staircase, width: int) -> float:
    """Time of a group's layers at ``width``, divided by the time in proportion to the nearest efficient width."""
    widths, times_us = zip(*stairs.swept, strict=True)
    nearest = min(stairs.candidates, key=lambda candidate: _distance((candidate,), (width,)))
    us, nearest_us = np.interp([width, nearest], widths, times_us)
    return float(us / nearest_us * nearest / width) if nearest_us > 0 else 1.0


def _distance(a: Sequence[int], b: Sequence[int]) -> float:
    return sum(abs(math.log(x / y)) for x, y in zip(a, b, strict=True))


def fit_whole(us: Iterable[float], nodes: Iterable[float], whole_us: Iterable[float]) -> Fit:
    """Fit the three numbers on networks: the sums of their layers' times and nodes, and their latency as a whole.

    Errors are relative to the latency, and large ones count less than their square. The noisier the latencies are, the
    closer the numbers stay to the prior: slope 1, and 0 for nodes and inferences.
    """
    whole: NDArray[np.float64] = np.array(list(whole_us))
    terms = np.column_stack([np.array(list(us)), np.array(list(nodes)), np.ones(len(whole))])
    relative = terms / whole[:, None]
    # Scaled like this, each number is its term's share of the latency.
    scale = 1 / np.abs(relative).mean(axis=0)
    usual = np.array([1.0, 0.0, 0.0]) / scale

    found, noise = usual, 0.0
    for _ in range(2):  # the first fit shows how noisy they are
        hold = noise / np.array(SPREAD)
        rows = np.concatenate([relative * scale, np.diag(hold)])
        found = _robust(rows, np.concatenate([np.ones(len(whole)), hold * usual]), start=usual)
        noise = TO_DEVIATION * float(np.median(np.abs(relative @ (found * scale) - 1)))
    slope, per_node_us, fixed_us = (float(value) for value in found * scale)
    return Fit(slope, per_node_us, fixed_us)


def _robust(rows: NDArray[np.float64], wanted: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve ``rows @ x = wanted`` under the soft-L1 loss: errors beyond OUTLYING count linearly.

    Slope and fixed part are at least 0, so that noise cannot make them negative.
    """
    from scipy.optimize import least_squares

    found = least_squares(
        lambda x: rows @ x - wanted,
        start,
        jac=lambda _: rows,
        bounds=([0.0, -np.inf, 0.0], np.inf),
        loss="soft_l1",
        f_scale=OUTLYING,
        xtol=TOLERANCE,
        ftol=TOLERANCE,
        gtol=TOLERANCE,
    )
    return np.asarray(found.x, dtype=np.float64)


def prediction_errors(predicted_us: Sequence[float], measured_us: Sequence[float]) -> CostErrors:
    """Compare predictions with measurements. The rank correlation is 0 where all values of either are equal."""
    predicted, measured = np.array(predicted_us), np.array(measured_us)
    relative = predicted / measured - 1
    vary = np.ptp(predicted) > 0 and np.ptp(measured) > 0
    return CostErrors(
        networks=len(measured),
        within_5=float((np.abs(relative) <= 0.05).mean()),
        within_10=float((np.abs(relative) <= 0.10).mean()),
        rmspe=float(np.sqrt((relative**2).mean())),
        spearman=float(np.corrcoef(_ranks(predicted), _ranks(measured))[0, 1]) if vary else 0.0,
    )


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank of each value in ascending order; equal ones share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks
