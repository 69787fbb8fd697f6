"""Reconstruction for one pruning run from one set of images: worth, choice of channels, solved network."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import nn

from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.cut.surgery import keeps_of
from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.memory import reused_pages
from catro_deploy.progress import Progress
from catro_deploy.reconstruction.choice import Eliminations
from catro_deploy.reconstruction.correction import NETWORKS
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.images import first_images, split_images
from catro_deploy.reconstruction.loss import divergence_from, softened_outputs
from catro_deploy.reconstruction.measurements import Measurements
from catro_deploy.reconstruction.readers import readers_of
from catro_deploy.reconstruction.refit import reconstruct_, write_back_
from catro_deploy.reconstruction.worth import FEWEST_IMAGES, SOLVED_FROM, Losses, LossMeter, images_within
from catro_deploy.records import Branch, Group, Keep, ReconstructionPlan
from catro_deploy.settings import PruneSettings

__all__ = ["FULL", "SCREENING", "Effort", "Reconstructor"]

WidthsAndBranches = tuple[tuple[tuple[str, int], ...], tuple[str, ...]]


@dataclass(frozen=True)
class Effort:
    """How thoroughly joint losses are measured: of at most how many ``networks``, and on which share of the images."""

    networks: int
    images: float


FULL = Effort(NETWORKS, 1.0)
SCREENING = Effort(1, 0.5)
"""To compare settings: only the network that is best by the sum of its losses, in half the time."""


@dataclass(frozen=True)
class Reconstructor:
    """Reconstructs ``model`` (eval mode, traced as ``network``) from normalised batches ``images``, on their device.

    ``measurements`` of the same model on the same images are reused, and new ones are added to them.
    """

    model: nn.Module
    network: Network
    images: Sequence[torch.Tensor]
    settings: PruneSettings
    progress: Progress
    measurements: Measurements = field(default_factory=Measurements)
    effort: Effort = FULL

    @cached_property
    def graph(self) -> OriginalGraph:
        """The unpruned network."""
        graph = OriginalGraph.of(self.model, self.network.input_shape, self.network.ignore, self.network.sizes)
        graph.module.to(self.images[0].device)  # the model may be on the CPU again
        return graph

    @cached_property
    def _parts(self) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        """Images that layers are solved from, and held-out ones to measure the result."""
        return split_images(self.images)

    @cached_property
    def eliminations(self) -> Eliminations:
        """The order in which the channels of each group are removed."""
        groups = [group for group in self.network.groups if self.follows(group)]
        criterion: Literal["catro", "obs"] = "obs" if self.settings.criterion == "obs" else "catro"
        solved, seed = self._parts[0], self.settings.seed
        return Eliminations(self.graph, groups, solved, criterion, self.progress, seed, self.measurements)

    @cached_property
    def _followed(self) -> frozenset[str]:
        return frozenset(group.name for group in self.network.groups if readers_of(group, self.graph))

    def follows(self, group: Group) -> bool:
        """Whether the consumers of ``group`` in the unpruned network can be followed."""
        return group.name in self._followed

    def kept(self, group: Group, width: int) -> tuple[int, ...] | None:
        """The ``width`` channels of ``group`` that are kept, ascending; None if its consumers cannot be followed."""
        return self.eliminations.kept(group, width) if self.follows(group) else None

    def losses(self, candidates: Mapping[str, Sequence[int]], branches: Sequence[Branch]) -> Losses:
        """The loss at each of the ``candidates`` (group to widths), and without each of ``branches``."""
        groups = [group for group in self.network.groups if group.name in candidates]
        meter = LossMeter(self.graph, self.eliminations, self._parts, self._limit(), self._macs)
        return meter.measure(groups, candidates, branches, self.progress)

    def loss_at(self, widths: Mapping[str, int], dropped: Sequence[str]) -> float:
        """The joint loss, in nats, at these ``widths`` of groups and without the branches ``dropped``."""
        return self.loss_from(self.graph.module, widths, dropped)

    def loss_from(self, reference: nn.Module, widths: Mapping[str, int], dropped: Sequence[str]) -> float:
        """The joint loss, likewise, as divergence from the outputs of ``reference``, which takes the same images."""
        key = tuple(sorted(widths.items())), tuple(sorted(dropped))
        if key not in self._outputs:
            self._outputs[key] = self._reconstructed_outputs(widths, dropped)
        held_out = self._few_images[1]
        return divergence_from(softened_outputs(reference, held_out), self._outputs[key])

    @cached_property
    def _outputs(self) -> dict[WidthsAndBranches, list[torch.Tensor]]:
        """The outputs of reconstructed networks to the held-out images among ``_few_images``."""
        return {}

    @cached_property
    def _few_images(self) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        """Images that networks are reconstructed from to measure their joint loss, and held-out ones."""
        # Solving runs its images through both networks, and takes about as long again for the layers.
        passes = NETWORKS * (3 * SOLVED_FROM + 2)
        count = max(FEWEST_IMAGES, int(self.effort.images * images_within(self._macs, passes)))
        return first_images(self._parts[0], SOLVED_FROM * count), first_images(self._parts[1], count)

    def _reconstructed_outputs(self, widths: Mapping[str, int], dropped: Sequence[str]) -> list[torch.Tensor]:
        groups = [group for group in self.network.groups if widths.get(group.name, group.width)]
        kept = {group.name: self.kept(group, widths.get(group.name, group.width)) for group in groups}
        chosen = {name: channels for name, channels in kept.items() if channels is not None}
        cut = self.graph.cut(keeps_of(groups, chosen, self.network.sizes), dropped)
        solved, held_out = self._few_images
        with reused_pages():
            reconstruct_(self.graph, cut, solved, self._limit(), seed=self.settings.seed)
            return list(softened_outputs(cut.module, held_out))

    def reconstructed(
        self, pruned: nn.Module, keeps: Mapping[str, Keep], dropped: Sequence[str]
    ) -> tuple[nn.Module, ReconstructionPlan]:
        """A copy of ``pruned``, cut by ``keeps`` without the branches ``dropped``, with its layers solved again.

        If solving does not bring the outputs closer to the original's, all layers keep their weights.
        """
        cut = self.graph.cut(keeps, dropped)
        solved_from, held_out = self._parts
        with reused_pages():
            expected = list(softened_outputs(self.graph.module, held_out))
            before = divergence_from(expected, softened_outputs(cut.module, held_out))
            found = reconstruct_(self.graph, cut, solved_from, self._limit(), self.progress, seed=self.settings.seed)
            after = divergence_from(expected, softened_outputs(cut.module, held_out))
        solved = copy.deepcopy(pruned).cpu()
        better = after < before
        if better:
            write_back_(solved, self.graph, cut, found)
        explained = {name: fit.explained for name, fit in found.fits.items()}
        return solved, ReconstructionPlan(before, after if better else before, explained, dict(found.left))

    @property
    def _macs(self) -> int:
        return sum(layer.macs for layer in self.network.layers)

    def _limit(self) -> MemoryLimit:
        return MemoryLimit(int(self.settings.activation_memory * 2**30))
