"""Worth of widths and residual branches: the loss if only one of them is cut and its consumers are solved again.

The loss is the KL divergence of the original's outputs from those of the remaining network. Only a few widths
of each group are measured; losses between them are interpolated by the squared errors of the elimination, which rise
with every removed channel.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.memory import reused_pages
from catro_deploy.progress import Progress
from catro_deploy.reconstruction.choice import Eliminations
from catro_deploy.reconstruction.graphs import CutGraph, OriginalGraph
from catro_deploy.reconstruction.images import first_images
from catro_deploy.reconstruction.loss import divergence_from, softened, softened_outputs
from catro_deploy.reconstruction.refit import reconstruct_
from catro_deploy.reconstruction.steps import Step, steps_of
from catro_deploy.reconstruction.suffix import Suffix
from catro_deploy.records import Branch, Group

__all__ = ["FEWEST_IMAGES", "SOLVED_FROM", "LossMeter", "Losses", "images_within"]

MEASURED_WIDTHS = 4
"""Widths of each group that are measured, besides the full one."""
BRANCH_STEPS = 4
"""Steps that are solved again if a branch is removed: the sum before it, and the layers of the block after it."""
MACS = 3e12
"""Multiply-accumulates that determine the number of images; solving layers, and large networks, take more."""
FEWEST_IMAGES, MOST_IMAGES = 24, 192
"""Bounds on the images that the loss is measured on."""
NEAR = 1 / 8
"""A width measured before replaces one that differs by at most this share of the full width: about half the distance
between measured widths."""
SOLVED_FROM = 4
"""Layers are solved from this many other images per image of the loss; with fewer they would overfit."""


@dataclass(frozen=True)
class Losses:
    """Losses in nats: of each group at each of its candidate widths, and of each removed branch."""

    widths: Mapping[str, Mapping[int, float]]
    branches: Mapping[str, float]


@dataclass(frozen=True)
class _Sample:
    """Batches to measure the loss on, with the original's softened outputs."""

    images: Sequence[torch.Tensor]
    expected: Sequence[torch.Tensor]

    def loss(self, logits: Iterable[torch.Tensor]) -> float:
        return divergence_from(self.expected, map(softened, logits))


@dataclass(frozen=True)
class LossMeter:
    """Measures losses of the network ``original``, within ``limit``.

    Attributes:
        eliminations: the order in which the channels of groups are removed; their ``measurements`` are not repeated.
        images: batches to solve layers from, and others on which the loss is measured.
        macs: multiply-accumulates for one image.
    """

    original: OriginalGraph
    eliminations: Eliminations
    images: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]
    limit: MemoryLimit
    macs: int

    def measure(
        self,
        groups: Sequence[Group],
        candidates: Mapping[str, Sequence[int]],
        branches: Sequence[Branch],
        progress: Progress,
    ) -> Losses:
        """The losses at the ``candidates`` of ``groups``, and without each of ``branches``."""
        known = self.eliminations.measurements
        new = {group.name: self._unmeasured(group, candidates[group.name]) for group in groups}
        todo = [group for group in groups if new[group.name]]
        removed = [branch for branch in branches if branch.name not in known.branch_losses]
        with progress.task("Measuring the worth of widths", len(todo) + len(removed)) as task:
            # A width runs half of the network, a branch runs it twice; solving its layers takes about as long.
            with reused_pages():
                count = images_within(self.macs, passes=len(groups) * MEASURED_WIDTHS / 2)
                self._measure_widths(todo, new, count, task.advance)
                widths = {one.name: self._between(one, candidates[one.name]) for one in groups}
                self.eliminations.release()  # all these orders are known: return the memory to the system
            with reused_pages():
                self._measure_branches(removed, images_within(self.macs, passes=len(branches) * 2), task.advance)
        return Losses(widths, {branch.name: known.branch_losses[branch.name] for branch in branches})

    def _unmeasured(self, group: Group, candidates: Sequence[int]) -> list[int]:
        """The widths of ``group`` to measure for ``candidates``, unless a width near them has been measured."""
        known = self._known(group)
        return [width for width in _evenly_spaced(group.width, candidates) if not _is_near(width, known, group.width)]

    def _known(self, group: Group) -> list[int]:
        """The widths of ``group`` that have been measured."""
        return [width for name, width in self.eliminations.measurements.width_losses if name == group.name]

    def _sample(self, count: int) -> _Sample:
        images = first_images(self.images[1], count)
        return _Sample(images, list(softened_outputs(self.original.module, images)))

    def _measure_widths(
        self, groups: Sequence[Group], widths: Mapping[str, Sequence[int]], count: int, advance: Callable[[], None]
    ) -> None:
        if not groups:
            return
        sample, known = self._sample(count), self.eliminations.measurements.width_losses
        nodes, readers = self.original.module.graph.nodes, self.eliminations.readers
        place = {str(node.target): at for at, node in enumerate(nodes) if node.op == "call_module"}
        first = {group.name: min(place[r.layer] for r in readers[group.name]) for group in groups}
        suffix = Suffix(self.original.module, sample.images, self.limit)
        for group in sorted(groups, key=lambda group: first[group.name]):
            with torch.inference_mode():
                suffix.advance(first[group.name])
            for width in widths[group.name]:
                with self.eliminations.cut_alone_(group, width), torch.inference_mode():
                    known[group.name, width] = sample.loss(suffix.logits())
            advance()
        suffix.close()

    def _between(self, group: Group, candidates: Sequence[int]) -> dict[int, float]:
        """The loss at every candidate, interpolated from the measured ones."""
        known = self.eliminations.measurements.width_losses
        points = {group.width: 0.0} | {width: known[group.name, width] for width in self._known(group)}
        errors = {width: self.eliminations.error(group, width) for width in {*points, *candidates}}
        return _interpolated(points, errors)

    def _measure_branches(self, branches: Sequence[Branch], count: int, advance: Callable[[], None]) -> None:
        """Measure the loss without each branch; with the layers around it solved again if that helps."""
        if not branches:
            return
        original, limit, sample = self.original, self.limit, self._sample(count)
        solved = first_images(self.images[0], SOLVED_FROM * count)
        to_solve, held_out = (Suffix(original.module, batches, limit) for batches in (solved, sample.images))
        for branch in branches:
            cut = original.cut({}, [branch.name])
            steps = steps_of(original, cut)[0][:BRANCH_STEPS]
            start = _first_change(original, cut, steps)
            with torch.inference_mode():
                to_solve.move(start)
                held_out.move(start)
                before = sample.loss(held_out.logits(cut.module))
            reconstruct_(original, cut, solved, limit, steps=steps, known=to_solve.known)
            with torch.inference_mode():
                after = sample.loss(held_out.logits(cut.module))
            self.eliminations.measurements.branch_losses[branch.name] = min(before, after)
            advance()
        to_solve.close()
        held_out.close()


def _first_change(original: OriginalGraph, cut: CutGraph, steps: Sequence[Step]) -> int:
    """The place of the first node of the original that is removed in ``cut``, or is a layer that ``steps`` solve."""
    there = {node.name for node in cut.module.graph.nodes}
    solved = {layer.name for step in steps for layer in step.layers}
    nodes = enumerate(original.module.graph.nodes)
    return next(at for at, node in nodes if node.name not in there or node.name in solved)


def _evenly_spaced(full: int, candidates: Sequence[int]) -> list[int]:
    """At most MEASURED_WIDTHS of the candidates below ``full``, the smallest and others evenly spaced."""
    narrow = sorted(width for width in candidates if width < full)
    places = np.linspace(0, len(narrow) - 1, min(len(narrow), MEASURED_WIDTHS)).round().astype(int)
    return [narrow[place] for place in places]


def _is_near(width: int, known: Sequence[int], full: int) -> bool:
    """Whether the loss at ``width`` follows from ``known`` widths: one is near, and it is not below all of them."""
    return any(abs(width - one) <= NEAR * full for one in known) and min(known) <= width


def _interpolated(points: Mapping[int, float], errors: Mapping[int, float]) -> dict[int, float]:
    """The loss at every width of ``errors``, interpolated by them from the losses ``points`` at some widths.

    Errors rise as widths fall, and losses are made non-decreasing in the same order.
    """
    known = sorted(points, reverse=True)
    rising = np.maximum.accumulate([points[width] for width in known])
    at = np.maximum.accumulate([errors[width] for width in known])
    return {width: float(np.interp(error, at, rising)) for width, error in errors.items()}


def images_within(macs: int, passes: float) -> int:
    """How many images can run ``passes`` times within MACS, at ``macs`` per image and pass; clamped to the bounds."""
    return int(min(max(MACS / (macs * max(passes, 1)), FEWEST_IMAGES), MOST_IMAGES))
