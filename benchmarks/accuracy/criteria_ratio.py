"""A channel criterion for criteria.py: the trace ratio of what a layer can still reconstruct.

Let W be the least-squares weights of the remaining channels. Reconstructed outputs y = W'x and errors e add up: the
scatter of the targets is the between-class scatter of y, plus its within-class scatter, plus e e'. The ratio of the
between-class scatter to the rest therefore grows exactly when the between-class scatter does, and Algorithm 1 needs no
iteration: each step drops the channel that leaves |M W|^2 largest, where M holds the class means of x. Updates are
those of reconstruction/obs.py.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from catro_deploy.progress import Silent
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.least_squares import damped
from catro_deploy.reconstruction.readers import Readers, readers_of
from catro_deploy.records import Group

__all__ = ["kept_by_ratio"]


def kept_by_ratio(
    original: OriginalGraph,
    groups: Sequence[Group],
    widths: Mapping[str, int],
    images: Sequence[torch.Tensor],
    by_class: Sequence[Sequence[torch.Tensor]],
) -> dict[str, tuple[int, ...]]:
    """The kept channels of each group; ``by_class`` are the batches of each class, ``images`` those of all, mixed."""
    readers = {group.name: readers_of(group, original) for group in groups}
    layers = sorted({reader.layer for found in readers.values() for reader in found})
    whole = Readers(original, layers, images, Silent())
    classes = [Readers(original, layers, some, Silent()) for some in by_class]
    kept = {}
    for group in groups:
        states = [
            _State(consumer.gram, consumer.weights, consumer.columns, _means(whole, classes, reader.layer))
            for reader in readers[group.name]
            for consumer in whole.consumers([reader])
        ]
        left = list(range(group.width))
        while len(left) > widths[group.name]:
            lost = sum(state.lost(left) for state in states)
            channel = left.pop(int(torch.as_tensor(lost).argmin()))
            for state in states:
                state.drop(channel)
        kept[group.name] = tuple(left)
    return kept


def _means(whole: Readers, classes: Sequence[Readers], layer: str) -> torch.Tensor:
    """Class means minus the overall mean, each times the root of the share of the class; (classes, columns)."""
    (total,) = whole._moments[layer]
    parts = [moments for of_class in classes for moments in of_class._moments[layer]]
    counted = sum(part.count for part in parts)
    return torch.stack([(part.mean()[0] - total.mean()[0]) * math.sqrt(part.count / counted) for part in parts])


class _State:
    def __init__(self, gram: torch.Tensor, weights: torch.Tensor, columns: torch.Tensor, means: torch.Tensor) -> None:
        self._inverse = damped(gram[None]).inverse()[0]
        self._weights, self._columns = weights.clone(), columns
        self._across, self._between = means @ self._inverse, means @ weights
        self._scale = float(self._between.square().sum()) or 1.0

    def lost(self, left: Sequence[int]) -> torch.Tensor:
        """Share of the between-class scatter that is lost with each channel; (channels left,)."""
        columns = self._columns[torch.tensor(left)]
        blocks = self._inverse[columns[:, :, None], columns[:, None, :]]
        change = self._across[:, columns].movedim(1, 0) @ torch.linalg.solve(blocks, self._weights[columns])
        return (2 * (self._between * change).sum((1, 2)) - change.square().sum((1, 2))) / self._scale

    def drop(self, channel: int) -> None:
        gone = self._columns[channel]
        across = self._inverse[:, gone]
        factor = torch.linalg.solve(across[gone], torch.cat([self._weights[gone], across.mT], 1))
        own, half = factor[:, : self._weights.shape[1]], factor[:, self._weights.shape[1] :]
        self._between -= self._across[:, gone] @ own
        self._across = self._across - self._across[:, gone] @ half
        self._weights = self._weights - across @ own
        self._inverse = self._inverse - across @ half
