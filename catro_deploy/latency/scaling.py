"""The latency profile of a network for images of another size.

A layer's time is scaled in proportion to the number of positions that it computes. That is too little if maps become
small, since a layer takes some time at any size. Therefore two networks, one wide and one narrow, are timed as a whole
at the new size, and a line through their predicted and measured latencies corrects all predictions. The line found in
float32 also corrects predictions in int8, though less well: what takes time at any size is mostly not arithmetic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from catro_deploy.latency.profile import LatencyProfile
from catro_deploy.latency.table import Cell, Fit, TableCost
from catro_deploy.records import Group, Layer

__all__ = ["Correction", "correction_of", "narrow_widths", "scaled_profile"]


@dataclass(frozen=True)
class Correction:
    """From the latency in proportion to positions to the measured one: ``factor`` times it, plus ``missing_us``.

    ``disturbed``: something else on the machine probably changed the measurements.
    """

    factor: float
    missing_us: float
    disturbed: bool = False


def correction_of(
    profile: LatencyProfile,
    own: Sequence[Layer],
    layers: Sequence[Layer],
    groups: Sequence[Group],
    measured: Sequence[tuple[Mapping[str, int], float]],
) -> Correction:
    """What corrects ``profile``, measured with the layers ``own``, for ``layers``, which compute fewer positions.

    ``measured`` are the widths of ``groups`` and the microseconds of two networks at the new size, the larger first.
    """
    proportional = _changed(profile, _shares(own, layers), 0.0)
    cost = TableCost(layers, groups, proportional.shapes, proportional.cells, profile.fit)
    wide, narrow = (cost.predict(widths) for widths, _ in measured)
    wide_us, narrow_us = (us for _, us in measured)
    factor = (wide_us - narrow_us) / (wide - narrow) if wide > narrow else 0.0
    if factor <= 0:  # noise: the two cannot be told apart
        factor = 1.0
    return Correction(factor, wide_us - factor * wide)


def scaled_profile(
    profile: LatencyProfile, own: Sequence[Layer], layers: Sequence[Layer], correction: Correction
) -> LatencyProfile:
    """Adapt ``profile``, measured with the layers ``own``, to ``layers``, which compute other numbers of positions.

    The staircases keep the times of the old size: what matters is which widths are efficient.
    """
    factor, fit = correction.factor, profile.fit
    corrected = replace(profile, fit=Fit(factor * fit.slope, factor * fit.per_node_us, factor * fit.fixed_us))
    per_layer_us = correction.missing_us / (factor * fit.slope) / len(layers) if fit.slope else 0.0
    return _changed(corrected, _shares(own, layers), per_layer_us)


def _shares(own: Sequence[Layer], layers: Sequence[Layer]) -> dict[str, float]:
    """The share of the positions of ``own`` that each of ``layers`` computes."""
    before = {layer.name: layer.positions for layer in own}
    return {layer.name: layer.positions / before[layer.name] for layer in layers}


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
