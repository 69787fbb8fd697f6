"""Make a profile from the times of many networks: cells of layers, three fitted numbers, errors on held-out ones."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from catro_deploy.agent.results import FactsResult, facts_record
from catro_deploy.latency.profile.fingerprint import digest, fingerprint
from catro_deploy.latency.profile.samples import Timed, cells_of
from catro_deploy.latency.profile.store import LatencyProfile
from catro_deploy.latency.profile.subject import Subject
from catro_deploy.latency.table import LayerTable, TableCost, fit_whole, prediction_errors
from catro_deploy.latency.template import Widths
from catro_deploy.records import Staircase

__all__ = ["Measured", "profile_from"]

# At most this share of the networks that were timed as a whole is held out; the others are used for the fit.
MOST_HELD_OUT = 1 / 3


@dataclass(frozen=True)
class Measured:
    """Networks, their times, the staircases that led to their widths, and the seconds that measuring took."""

    networks: Sequence[Widths]
    timings: Sequence[Timed]
    staircases: Mapping[str, Staircase]
    seconds: float


def profile_from(subject: Subject, measured: Measured, device: FactsResult, held_out: int) -> LatencyProfile:
    """Fit a profile on all of ``measured`` except ``held_out`` networks, and evaluate it on those."""
    shapes, networks, timings = subject.shapes, measured.networks, measured.timings
    whole = [i for i, of in enumerate(timings) if of.whole_us is not None]
    originals = [i for i in whole if networks[i] == subject.full]
    # If noise left no efficient width except the full one, there are only originals.
    others = [i for i in whole if i not in originals] or whole
    held_out_places = others[: max(1, min(held_out, int(len(whole) * MOST_HELD_OUT)))]
    used = [i for i in range(len(networks)) if i not in held_out_places]
    at = [subject.cost.layer_widths(network) for network in networks]
    cells = cells_of([timings[i] for i in used], [at[i] for i in used], shapes)
    fitted = [i for i in whole if i not in held_out_places]
    whole_us = [timings[i].whole_us or 0.0 for i in range(len(timings))]
    us, nodes = zip(*(_sums(cells, shapes, at[i]) for i in fitted), strict=True)
    fit = fit_whole(us, nodes, [whole_us[i] for i in fitted])
    cost = TableCost(subject.network.layers, subject.groups, shapes, cells, fit)
    return LatencyProfile(
        target=subject.use.target,
        device=facts_record(device),
        fingerprint=fingerprint(device, subject.use),
        network=digest(sorted(shapes.items())),
        measured=time.strftime("%Y-%m-%d"),
        seconds=round(measured.seconds, 1),
        networks=len(networks),
        disagreement=float(np.median([of.disagreement for of in timings])),
        original_us=float(np.median([whole_us[i] for i in originals] or [cost.predict(subject.full)])),
        shapes=shapes,
        staircases=measured.staircases,
        fit=fit,
        errors=prediction_errors(
            [cost.predict(networks[i]) for i in held_out_places], [whole_us[i] for i in held_out_places]
        ),
        cells=cells,
    )


def _sums(cells: LayerTable, shapes: Mapping[str, str], at: Mapping[str, tuple[int, int]]) -> tuple[float, float]:
    """Microseconds and nodes of all layers of a network with the widths ``at``."""
    found = [cells[shape][at[layer]] for layer, shape in shapes.items()]
    return sum(cell.us for cell in found), sum(cell.nodes for cell in found)
