"""Which channels of each group stay: those that the layers behind it can least do without.

``obs`` counts all squared error of those layers' outputs alike. ``catro`` weighs it by the directions that separate the
wanted classes, see sensitivity.py: of the paper's trace ratio, taken of what the next layer can still reconstruct, what
is lost between classes counts, and what is lost elsewhere does not.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch

from catro_deploy.progress import Progress
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.images import first_images
from catro_deploy.reconstruction.obs import eliminate
from catro_deploy.reconstruction.readers import Readers, readers_of
from catro_deploy.reconstruction.rows import layer_of, set_weight_matrix_, weight_matrix
from catro_deploy.reconstruction.sensitivity import logit_directions
from catro_deploy.records import Group

__all__ = ["Eliminations"]

DIRECTION_IMAGES = 256
"""That the network runs backwards for: a mean of so many, over all positions, is known well."""


class Eliminations:
    """For each group the order in which its channels go, found when it is first asked for.

    Groups without a layer that reads them in a way that can be followed have none.
    """

    def __init__(
        self,
        original: OriginalGraph,
        groups: Sequence[Group],
        images: Sequence[torch.Tensor],
        criterion: Literal["catro", "obs"],
        progress: Progress,
        seed: int = 0,
    ) -> None:
        self.readers = {group.name: readers_of(group, original) for group in groups}
        layers = sorted({reader.layer for readers in self.readers.values() for reader in readers})
        self._grams = Readers(original, layers, images, progress, seed)
        self._weights = {name: weight_matrix(layer_of(original.module, name))[0].double() for name in layers}
        if criterion == "catro":
            roots = logit_directions(original, layers, first_images(images, DIRECTION_IMAGES), progress, seed)
            self._weights = {name: weights @ roots[name] for name, weights in self._weights.items()}
        self._module = original.module
        self._paths: dict[str, tuple[list[int], list[float]]] = {}

    def kept(self, group: Group, width: int) -> tuple[int, ...] | None:
        """The ``width`` channels of ``group`` that stay, ascending; None if there is nothing to tell by."""
        if not self.readers[group.name]:
            return None
        gone = set(self._path(group)[0][: group.width - width])
        return tuple(channel for channel in range(group.width) if channel not in gone)

    def error(self, group: Group, width: int) -> float:
        """Squared error of the readers' outputs at ``width``, a share of what they vary by, added over them."""
        return self._path(group)[1][group.width - width]

    @contextmanager
    def cut_alone_(self, group: Group, width: int) -> Iterator[None]:
        """Let the readers of ``group`` in the original's graph do with ``width`` channels as well as they can."""
        gone = self._path(group)[0][: group.width - width]
        layers = [(reader, layer_of(self._module, reader.layer)) for reader in self.readers[group.name]]
        before = [(layer.weight.detach().clone(), layer.bias) for _, layer in layers]
        found = [self._grams.refit(reader, gone) for reader, _ in layers]
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
        """The channels in the order in which they go, and the error after so many."""
        if group.name not in self._paths:
            consumers = self._grams.consumers(self.readers[group.name], self._weights)
            steps = list(eliminate(consumers, group.width))
            self._paths[group.name] = ([step.dropped for step in steps], [0.0, *(step.error for step in steps)])
        return self._paths[group.name]
