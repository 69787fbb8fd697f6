"""What widths and residual branches are worth: what is lost when one alone is cut and what reads it is solved again.

The loss is the KL divergence of the original's answers from those of the network that is left. Few widths of each group
are measured; those between follow from the squared errors of the elimination, which rise with every channel.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.progress import Progress
from catro_deploy.reconstruction.choice import Eliminations
from catro_deploy.reconstruction.graphs import CutGraph, OriginalGraph
from catro_deploy.reconstruction.images import first_images
from catro_deploy.reconstruction.loss import answers, divergence_from, softened
from catro_deploy.reconstruction.refit import reconstruct_
from catro_deploy.reconstruction.steps import Step, steps_of
from catro_deploy.reconstruction.suffix import Suffix
from catro_deploy.records import Branch, Group

__all__ = ["SOLVED_FROM", "Losses", "images_within", "measure_losses"]

MEASURED_WIDTHS = 4
"""Of each group, the full one not counted."""
BRANCH_STEPS = 4
"""Steps that are solved again where a branch is gone: the sum before it, and the layers of the block behind it."""
MACS = 4e12
"""Multiply-accumulates by which the number of images is chosen; solving layers and large networks take more."""
FEWEST_IMAGES, MOST_IMAGES = 24, 192
"""That the loss is measured on."""
SOLVED_FROM = 4
"""Times as many other images layers are solved from; from as many they would be too close to these to tell."""


@dataclass(frozen=True)
class Losses:
    """What is lost, in nats: by each group at each of its candidate widths, and by each branch that is gone."""

    widths: Mapping[str, Mapping[int, float]]
    branches: Mapping[str, float]


def measure_losses(
    original: OriginalGraph,
    eliminations: Eliminations,
    groups: Sequence[Group],
    candidates: Mapping[str, Sequence[int]],
    branches: Sequence[Branch],
    images: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
    limit: MemoryLimit,
    progress: Progress,
    macs: int,
) -> Losses:
    """Measure the ``candidates`` of ``groups``, and ``branches``; ``macs`` is what the network takes for one image.

    ``images`` are batches to solve layers from, and others on which the loss is measured.
    """
    # For each width half of the network runs, for each branch twice; solving its layers takes about as long again.
    count = images_within(macs, passes=len(groups) * MEASURED_WIDTHS / 2 + len(branches) * 2)
    solved, some = first_images(images[0], SOLVED_FROM * count), first_images(images[1], count)
    expected = list(answers(original.module, some))
    with progress.task("Measuring what widths are worth", len(groups) + len(branches)) as task:
        widths = _width_losses(original, eliminations, groups, candidates, some, expected, limit, task.advance)
        gone = _branch_losses(original, branches, solved, some, expected, limit, task.advance)
    return Losses(widths, gone)


def _width_losses(
    original: OriginalGraph,
    eliminations: Eliminations,
    groups: Sequence[Group],
    candidates: Mapping[str, Sequence[int]],
    images: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    limit: MemoryLimit,
    advance: Callable[[], None],
) -> dict[str, dict[int, float]]:
    place = {str(node.target): at for at, node in enumerate(original.module.graph.nodes) if node.op == "call_module"}
    first = {group.name: min(place[r.layer] for r in eliminations.readers[group.name]) for group in groups}
    suffix = Suffix(original.module, images, limit)
    found: dict[str, dict[int, float]] = {}
    for group in sorted(groups, key=lambda group: first[group.name]):
        with torch.inference_mode():
            suffix.advance(first[group.name])
        points = {group.width: 0.0}
        for width in _measured(group.width, candidates[group.name]):
            with eliminations.cut_alone_(group, width), torch.inference_mode():
                points[width] = _loss(expected, suffix.logits())
        errors = {width: eliminations.error(group, width) for width in {*points, *candidates[group.name]}}
        found[group.name] = _interpolated(points, errors)
        advance()
    suffix.close()
    return found


def _branch_losses(
    original: OriginalGraph,
    branches: Sequence[Branch],
    solved: Sequence[torch.Tensor],
    images: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    limit: MemoryLimit,
    advance: Callable[[], None],
) -> dict[str, float]:
    """Without each branch; with the layers around it solved again if that helps, since those behind are not."""
    to_solve, to_judge = (Suffix(original.module, batches, limit) for batches in (solved, images))
    found = {}
    for branch in branches:
        cut = original.cut({}, [branch.name])
        steps = steps_of(original, cut)[0][:BRANCH_STEPS]
        start = _first_change(original, cut, steps)
        with torch.inference_mode():
            to_solve.move(start)
            to_judge.move(start)
            before = _loss(expected, to_judge.logits(cut.module))
        reconstruct_(original, cut, solved, limit, steps=steps, known=to_solve.known)
        with torch.inference_mode():
            found[branch.name] = min(before, _loss(expected, to_judge.logits(cut.module)))
        advance()
    to_solve.close()
    to_judge.close()
    return found


def _first_change(original: OriginalGraph, cut: CutGraph, steps: Sequence[Step]) -> int:
    """The place of the first node of the original that is gone in ``cut``, or a layer that ``steps`` solve."""
    there = {node.name for node in cut.module.graph.nodes}
    solved = {layer.name for step in steps for layer in step.layers}
    nodes = enumerate(original.module.graph.nodes)
    return next(at for at, node in nodes if node.name not in there or node.name in solved)


def _measured(full: int, candidates: Sequence[int]) -> list[int]:
    """At most MEASURED_WIDTHS of the candidates below ``full``, the smallest and others evenly spaced."""
    narrow = sorted(width for width in candidates if width < full)
    places = np.linspace(0, len(narrow) - 1, min(len(narrow), MEASURED_WIDTHS)).round().astype(int)
    return [narrow[place] for place in places]


def _interpolated(points: Mapping[int, float], errors: Mapping[int, float]) -> dict[int, float]:
    """The loss at every width of ``errors``, which rise as widths fall, from the losses at some; it never falls so."""
    known = sorted(points, reverse=True)
    rising = np.maximum.accumulate([points[width] for width in known])
    at = np.maximum.accumulate([errors[width] for width in known])
    return {width: float(np.interp(error, at, rising)) for width, error in errors.items()}


def _loss(expected: Sequence[torch.Tensor], logits: Iterable[torch.Tensor]) -> float:
    return divergence_from(expected, map(softened, logits))


def images_within(macs: int, passes: float) -> int:
    """How many images run ``passes`` times within MACS, at ``macs`` for each of them, within bounds."""
    return int(min(max(MACS / (macs * max(passes, 1)), FEWEST_IMAGES), MOST_IMAGES))
