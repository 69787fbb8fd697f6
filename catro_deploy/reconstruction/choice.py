"""Which channels of each group are kept: those that its consumers can least reconstruct from the others.

``obs`` weights all squared errors of the consumers' outputs equally. ``catro`` weights them by the directions that
separate the wanted classes (see sensitivity.py): errors between classes count, other errors do not.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch

from catro_deploy.memory import reused_pages
from catro_deploy.progress import Progress
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.images import first_images
from catro_deploy.reconstruction.measurements import Measurements
from catro_deploy.reconstruction.obs import eliminate
from catro_deploy.reconstruction.readers import Readers, readers_of
from catro_deploy.reconstruction.rows import layer_of, set_weight_matrix_, weight_matrix
from catro_deploy.reconstruction.sensitivity import logit_directions
from catro_deploy.records import Group

__all__ = ["Eliminations"]

DIRECTION_IMAGES = 256
"""Images for the backward passes; the mean over these images is precise enough."""


@dataclass(frozen=True)
class _Inputs:
    """Inputs of the eliminations: Gram matrices of the layers' inputs, and weights (columns, outputs) of each layer.

    For ``catro``, weights are multiplied by the roots of ``logit_directions``, so that only errors that matter count.
    """

    grams: Readers
    weights: Mapping[str, torch.Tensor]


class Eliminations:
    """The order in which the channels of each group are removed, computed at first use unless already measured.

    Groups whose consumers cannot be followed have no order. The Gram matrices are also measured at first use, and again
    if they are needed after ``release``.
    """

    def __init__(
        self,
        original: OriginalGraph,
        groups: Sequence[Group],
        images: Sequence[torch.Tensor],
        criterion: Literal["catro", "obs"],
        progress: Progress,
        seed: int = 0,
        measurements: Measurements | None = None,
    ) -> None:
        self.measurements = measurements or Measurements()
        self.readers = {group.name: readers_of(group, original) for group in groups}
        self._original, self._images, self._criterion = original, images, criterion
        self._progress, self._seed = progress, seed
        self._module = original.module

    @cached_property
    def _inputs(self) -> _Inputs:
        layers = sorted({reader.layer for readers in self.readers.values() for reader in readers})
        with reused_pages():
            grams = Readers(self._original, layers, self._images, self._progress, self._seed)
            roots = {}
            if self._criterion == "catro":
                some = first_images(self._images, DIRECTION_IMAGES)
                roots = logit_directions(self._original, layers, some, self._progress, self._seed)
            weights = {}
            for name in layers:
                matrix = weight_matrix(layer_of(self._module, name))[0].double()
                # Each root is freed once it is used.
                weights[name] = matrix @ roots.pop(name) if roots else matrix
        return _Inputs(grams, weights)

    def release(self) -> None:
        """Free the Gram matrices, which may take a GiB; the known orders are kept."""
        self.__dict__.pop("_inputs", None)

    def kept(self, group: Group, width: int) -> tuple[int, ...] | None:
        """The ``width`` channels of ``group`` that are kept, ascending; None if its consumers cannot be followed."""
        if not self.readers[group.name]:
            return None
        if width == group.width:
            return tuple(range(width))
        gone = set(self._path(group)[0][: group.width - width])
        return tuple(channel for channel in range(group.width) if channel not in gone)

    def error(self, group: Group, width: int) -> float:
        """Squared error of the consumers' outputs at ``width``, as a share of their variance, summed over consumers."""
        return self._path(group)[1][group.width - width]

    @contextmanager
    def cut_alone_(self, group: Group, width: int) -> Iterator[None]:
        """Give the consumers of ``group`` in the original's graph their best weights for ``width`` channels."""
        gone = self._path(group)[0][: group.width - width]
        layers = [(reader, layer_of(self._module, reader.layer)) for reader in self.readers[group.name]]
        before = [(layer.weight.detach().clone(), layer.bias) for _, layer in layers]
        found = [self._inputs.grams.refit(reader, gone) for reader, _ in layers]
        try:
            for (_, layer), (matrix, shift) in zip(layers, found, strict=True):
                set_weight_matrix_(layer, matrix[None].to(layer.weight.dtype))
                if layer.bias is not None:
                    layer.bias = torch.nn.Parameter((layer.bias.double() + shift).to(layer.weight.dtype), False)
            yield
        finally:
            for (_, layer), (weight, bias) in zip(layers, before, strict=True):
                with torch.no_grad():
                    layer.weight.copy_(weight)
                layer.bias = bias

    def _path(self, group: Group) -> tuple[list[int], list[float]]:
        """The channels in the order of their removal, and the error after each removal."""
        orders = self.measurements.orders
        if group.name not in orders:
            consumers = self._inputs.grams.consumers(self.readers[group.name], self._inputs.weights)
            steps = list(eliminate(consumers, group.width))
            orders[group.name] = ([step.dropped for step in steps], [0.0, *(step.error for step in steps)])
        return orders[group.name]
