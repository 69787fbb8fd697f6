"""What widths and branches lose together, where the sum of what each loses alone is too little.

Two branches of one stage that are both dropped may lose ten times what each loses alone. So a network is allocated by
the sum, cut and reconstructed; where it loses more than predicted, its dropped branches (or where there are none, its
narrowed groups) are taken to lose more, and it is allocated again. Of all networks tried the best counts.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from catro_deploy.catro.gains import Allocation
from catro_deploy.progress import Progress
from catro_deploy.reconstruction.worth import Losses
from catro_deploy.records import Branch

__all__ = ["NETWORKS", "corrected", "dropped_by", "predicted_loss"]

NETWORKS = 6
"""That are cut and reconstructed at most."""
SOLUTIONS = 16
"""Allocations at most; several may be the same network."""
LARGEST_FACTOR = 2.0
"""By which a loss is raised at a time. The excess is not all due to the parts that it is put down to."""
CLOSE = 1.1
"""A network that loses at most so many times what was predicted is as predicted."""


def corrected(
    losses: Losses,
    branches: Sequence[Branch],
    allocate: Callable[[Losses], Allocation],
    measure: Callable[[Mapping[str, int]], float],
    progress: Progress,
) -> Losses:
    """The losses by which the best network was found.

    ``allocate`` finds widths by losses, ``measure`` tells what a network of these widths loses, in nats.
    """
    measured: dict[tuple[tuple[str, int], ...], float] = {}
    best, least, current = losses, math.inf, losses
    with progress.task("Checking what is lost together", NETWORKS) as task:
        for _ in range(SOLUTIONS):
            widths = allocate(current).widths
            key = tuple(sorted(widths.items()))
            if key not in measured:
                if len(measured) == NETWORKS:
                    break
                measured[key] = measure(widths)
                task.advance()
            if measured[key] < least:
                best, least = current, measured[key]
            excess = measured[key] / max(predicted_loss(current, branches, widths), 1e-12)
            if excess <= CLOSE:
                break
            current = _raised(current, branches, widths, min(math.sqrt(excess), LARGEST_FACTOR))
    return best


def dropped_by(widths: Mapping[str, int], branches: Sequence[Branch]) -> list[Branch]:
    """Those of ``branches`` that are dropped at ``widths``: all their groups have width 0."""
    return [branch for branch in branches if not any(widths[name] for name in branch.groups)]


def predicted_loss(losses: Losses, branches: Sequence[Branch], widths: Mapping[str, int]) -> float:
    """The sum of what each dropped branch and each narrowed group loses, in nats."""
    dropped = dropped_by(widths, branches)
    inside = {name for branch in dropped for name in branch.groups}
    kept = (losses.widths[name][width] for name, width in widths.items() if name not in inside)
    return sum(kept) + sum(losses.branches[branch.name] for branch in dropped)


def _raised(losses: Losses, branches: Sequence[Branch], widths: Mapping[str, int], factor: float) -> Losses:
    dropped = {branch.name for branch in dropped_by(widths, branches)}
    if dropped:
        return Losses(losses.widths, {n: loss * (factor if n in dropped else 1) for n, loss in losses.branches.items()})
    narrowed = {name for name, width in widths.items() if width < max(losses.widths[name])}
    raised = {
        name: {width: loss * (factor if name in narrowed else 1) for width, loss in of_group.items()}
        for name, of_group in losses.widths.items()
    }
    return Losses(raised, losses.branches)
