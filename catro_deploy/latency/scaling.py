"""The latency profile of a network for images of another size.

A layer's time is scaled in proportion to the number of positions that it computes. That is too little if maps become
small, since a layer takes some time at any size. Therefore two networks, one wide and one narrow, are timed as a whole
at the new size, and a line through their predicted and measured latencies corrects all predictions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from catro_deploy.latency.profile import LatencyProfile
from catro_deploy.latency.table import Cell, Fit, TableCost
from catro_deploy.records import Group, Layer

__all__ = ["narrow_widths", "scaled_profile"]


def scaled_profile(
    profile: LatencyProfile,
    own: Sequence[Layer],
    layers: Sequence[Layer],
    groups: Sequence[Group],
    measured: Sequence[tuple[Mapping[str, int], float]],
) -> LatencyProfile:
    """Adapt ``profile``, measured with the layers ``own``, to ``layers``, which compute other numbers of positions.

    ``measured`` are the widths of ``groups`` and the microseconds of two networks at the new size, the larger first.
    The staircases keep the times of the old size: what matters is which widths are efficient.
    """
    before = {layer.name: layer.positions for layer in own}
    shares = {layer.name: layer.positions / before[layer.name] for layer in layers}
    proportional = _changed(profile, shares, 0.0)
    cost = TableCost(layers, groups, proportional.shapes, proportional.cells, profile.fit)
    wide, narrow = (cost.predict(widths) for widths, _ in measured)
    wide_us, narrow_us = (us for _, us in measured)
    factor = (wide_us - narrow_us) / (wide - narrow) if wide > narrow else 0.0
    if factor <= 0:  # noise: the two cannot be told apart
        factor = 1.0
    fit = profile.fit
    corrected = replace(profile, fit=Fit(factor * fit.slope, factor * fit.per_node_us, factor * fit.fixed_us))
    missing_us = wide_us - factor * wide
    return _changed(corrected, shares, missing_us / (factor * fit.slope) / len(layers) if fit.slope else 0.0)


def narrow_widths(groups: Sequence[Group], profile: LatencyProfile) -> dict[str, int]:
    """For each of ``groups``, the efficient width nearest to half of its channels."""
    return {group.name: _nearest(profile.staircases[group.name].candidates, group.width / 2) for group in groups}


def _nearest(widths: Sequence[int], wanted: float) -> int:
    return min(widths, key=lambda width: abs(width - wanted))


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
