"""Correction of the losses of widths and branches where their sum underestimates the joint loss.

Removing two branches of one stage may lose ten times as much as removing either alone. So a network is allocated by the
sum, cut and reconstructed; if it loses more than predicted, the losses of its removed branches (or, without any, of its
narrowed groups) are raised, and it is allocated again. The best of all networks is kept.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from catro_deploy.catro.gains import Allocation
from catro_deploy.progress import Progress
from catro_deploy.reconstruction.worth import Losses
from catro_deploy.records import Branch

__all__ = ["NETWORKS", "corrected", "dropped_by", "predicted_loss"]

NETWORKS = 6
"""Maximum number of networks that are cut and reconstructed."""
SOLUTIONS = 16
"""Maximum number of allocations; several may give the same network."""
LARGEST_FACTOR = 2.0
"""Largest factor by which a loss is raised at a time: the excess may have other causes."""
CLOSE = 1.1
"""A loss of at most this multiple of the predicted one counts as predicted."""


def corrected(
    losses: Losses,
    branches: Sequence[Branch],
    allocate: Callable[[Losses], Allocation],
    measure: Callable[[Mapping[str, int]], float],
    progress: Progress,
    most: int = NETWORKS,
) -> Losses:
    """The losses for which the allocation gave the best network.

    ``allocate`` chooses widths from losses, ``measure`` returns the loss of a network of these widths, in nats, for at
    most ``most`` networks.
    """
    measured: dict[tuple[tuple[str, int], ...], float] = {}
    best, least, current = losses, math.inf, losses
    with progress.task("Checking the joint loss", most) as task:
        for _ in range(SOLUTIONS):
            widths = allocate(current).widths
            key = tuple(sorted(widths.items()))
            if key not in measured:
                if len(measured) == most:
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
    """Those of ``branches`` that are removed at ``widths``: all their groups have width 0."""
    return [branch for branch in branches if not any(widths[name] for name in branch.groups)]


def predicted_loss(losses: Losses, branches: Sequence[Branch], widths: Mapping[str, int]) -> float:
    """The sum of the losses of each removed branch and each narrowed group, in nats."""
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
