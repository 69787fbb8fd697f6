"""The latency profile of a network for images of another size.

A layer's time is taken in proportion to the positions that it computes at, plus what it takes at any number of them.
The latter is the same for all layers, and follows from the latency of one whole network at the new size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from catro_deploy.latency.profile import LatencyProfile
from catro_deploy.latency.table import Cell, TableCost
from catro_deploy.records import Group, Layer

__all__ = ["scaled_profile"]


def scaled_profile(
    profile: LatencyProfile, own: Sequence[Layer], layers: Sequence[Layer], groups: Sequence[Group], whole_us: float
) -> LatencyProfile:
    """``profile``, measured with the layers ``own``, for ``layers`` that compute at other numbers of positions.

    ``whole_us`` is the latency of the network of all channels of ``groups`` at the new size. The staircases keep the
    times that were measured: what counts of them is which widths are efficient.
    """
    before = {layer.name: layer.positions for layer in own}
    shares = {layer.name: layer.positions / before[layer.name] for layer in layers}
    proportional = _changed(profile, shares, 0.0)
    cost = TableCost(layers, groups, proportional.shapes, proportional.cells, profile.fit)
    missing_us = whole_us - cost.predict({group.name: group.width for group in groups})
    slope = profile.fit.slope
    return _changed(profile, shares, missing_us / slope / len(layers) if slope else 0.0)


def _changed(profile: LatencyProfile, shares: Mapping[str, float], more_us: float) -> LatencyProfile:
    shapes = {layer: f"{profile.shapes[layer]} scaled by {share:.3g}" for layer, share in shares.items()}
    cells = {
        shapes[layer]: {
            widths: _scaled(cell, share, more_us) for widths, cell in profile.cells[profile.shapes[layer]].items()
        }
        for layer, share in shares.items()
    }
    return replace(profile, shapes=shapes, cells=cells)


def _scaled(cell: Cell, share: float, more_us: float) -> Cell:
    return replace(cell, us=max(0.0, cell.us * share + more_us))
