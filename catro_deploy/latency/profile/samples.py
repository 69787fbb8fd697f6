"""Compute the times of layers from the samples of the device's agent."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from catro_deploy.agent.events import Sample
from catro_deploy.errors import FaultError
from catro_deploy.graph.onnx.onnx_layers import layer_of
from catro_deploy.latency.table import Cell

__all__ = ["Timed", "cells_of", "reference_level_us", "timed"]


@dataclass(frozen=True)
class Timed:
    """One network: the microseconds and the number of nodes of each layer; the whole latency, if it was measured.

    ``disagreement`` is the spread of the rounds, as a share of their median.
    """

    layers: Mapping[str, tuple[float, int]]
    whole_us: float | None
    disagreement: float


def reference_level_us(samples: Iterable[Sample]) -> float:
    """Median time of the reference network, over all rounds of all samples."""
    return float(np.median([level for sample in samples for level in sample.reference_us]))


def timed(sample: Sample, level_us: float, names: Collection[str]) -> Timed:
    """Add up the nodes of each layer in ``names``; the reference's drift against ``level_us`` is divided out.

    Nodes that the runtime inserted, such as layout changes, have other names: they count towards the layer whose node
    ran before them; those before the first layer count towards it.

    Raises:
        FaultError: a layer has no node, so its time would count as 0.
    """
    drift = np.array(sample.reference_us) / level_us
    owners = [layer_of(node.name) for node in sample.nodes]
    layer = next((owner for owner in owners if owner in names), None)
    layers: dict[str, tuple[float, int]] = {}
    total = np.zeros(len(drift))
    for owner, node in zip(owners, sample.nodes, strict=True):
        layer = owner if owner in names else layer
        rounds_us = np.array(node.rounds_us) / drift
        us, nodes = layers.get(str(layer), (0.0, 0))
        layers[str(layer)] = us + float(np.median(rounds_us)), nodes + 1
        total += rounds_us
    lacking = [name for name in names if name not in layers]
    if lacking:
        raise FaultError(
            f"The runtime's profile has no times for {', '.join(lacking)}.",
            "Install another version of the runtime, or prune by multiply-accumulates: --budget 50%flops.",
        )
    whole_us = None if sample.whole_us is None else np.array(sample.whole_us) / drift
    apart = [_apart(rounds_us) for rounds_us in (total, whole_us) if rounds_us is not None]
    return Timed(layers, None if whole_us is None else float(np.median(whole_us)), max(apart))


def _apart(rounds_us: "np.ndarray[Any, np.dtype[np.float64]]") -> float:
    return float(np.ptp(rounds_us) / np.median(rounds_us))


def cells_of(
    networks: Sequence[Timed], widths: Sequence[Mapping[str, tuple[int, int]]], shapes: Mapping[str, str]
) -> dict[str, dict[tuple[int, int], Cell]]:
    """Gather the times of layers that have the same shape and the same widths (in, out) into cells."""
    gathered: dict[str, dict[tuple[int, int], list[tuple[float, int]]]] = {}
    for network, at in zip(networks, widths, strict=True):
        for layer, shape in shapes.items():
            gathered.setdefault(shape, {}).setdefault(at[layer], []).append(network.layers[layer])
    return {shape: {pair: _cell(times) for pair, times in cells.items()} for shape, cells in gathered.items()}


def _cell(times: Sequence[tuple[float, int]]) -> Cell:
    us = np.array([time for time, _ in times])
    low, middle, high = np.percentile(us, [25, 50, 75])
    nodes = float(np.mean([count for _, count in times]))
    return Cell(float(middle), nodes, float((high - low) / middle) if middle > 0 else 0.0, len(times))
