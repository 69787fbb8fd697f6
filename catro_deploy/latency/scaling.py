"""The latency profile of a network for images of another size: the times of layers in proportion to their positions."""

from collections.abc import Sequence
from dataclasses import replace

from catro_deploy.latency.profile import LatencyProfile
from catro_deploy.latency.table import Cell
from catro_deploy.records import Layer

__all__ = ["scaled_profile"]


def scaled_profile(profile: LatencyProfile, own: Sequence[Layer], layers: Sequence[Layer]) -> LatencyProfile:
    """``profile``, measured with the layers ``own``, for ``layers`` that compute at other numbers of positions.

    The staircases keep the times that were measured: what counts of them is which widths are efficient.
    """
    before = {layer.name: layer.positions for layer in own}
    shapes, cells = {}, {}
    for layer in layers:
        share = layer.positions / before[layer.name]
        shape = profile.shapes[layer.name]
        shapes[layer.name] = name = f"{shape} scaled by {share:.3g}"
        cells[name] = {widths: _scaled(cell, share) for widths, cell in profile.cells[shape].items()}
    return replace(profile, shapes=shapes, cells=cells)


def _scaled(cell: Cell, share: float) -> Cell:
    return replace(cell, us=cell.us * share)
