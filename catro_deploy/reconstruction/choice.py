"""Which channels of each group stay: those that the layers behind it can least do without.

``obs`` counts all squared error of those layers' outputs alike. ``catro`` weighs it by the directions that separate the
wanted classes, see sensitivity.py: of the paper's trace ratio, taken of what the next layer can still reconstruct, what
is lost between classes counts, and what is lost elsewhere does not.
"""

from collections.abc import Sequence
from typing import Literal

import torch

from catro_deploy.core.obs import eliminate
from catro_deploy.graph.rows import layer_of, weight_matrix
from catro_deploy.progress import Progress
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.readers import Readers, readers_of
from catro_deploy.reconstruction.sensitivity import logit_directions
from catro_deploy.records import Group

__all__ = ["Eliminations"]


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
            roots = logit_directions(original, layers, images, progress, seed)
            self._weights = {name: weights @ roots[name] for name, weights in self._weights.items()}
        self._dropped: dict[str, tuple[int, ...]] = {}

    def kept(self, group: Group, width: int) -> tuple[int, ...] | None:
        """The ``width`` channels of ``group`` that stay, ascending; None if there is nothing to tell by."""
        if not self.readers[group.name]:
            return None
        if group.name not in self._dropped:
            consumers = self._grams.consumers(self.readers[group.name], self._weights)
            self._dropped[group.name] = tuple(step.dropped for step in eliminate(consumers, group.width))
        gone = set(self._dropped[group.name][: group.width - width])
        return tuple(channel for channel in range(group.width) if channel not in gone)
