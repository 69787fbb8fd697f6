"""Which channels a layer needs least: Optimal Brain Surgeon on Gram matrices.

For a layer with weights W that reads rows x, H is the inverse of the (damped) Gram matrix. Without the columns c of a
channel the best weights lose tr(W_c' (H_cc)^-1 W_c) of squared error, and are W - H_:c (H_cc)^-1 W_c; the inverse
becomes H - H_:c (H_cc)^-1 H_c: (Hassibi and Stork, 1993, with a channel's columns instead of one weight). Channels are
removed one by one, the cheapest first, which gives the order, the error of every width, and the weights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from catro_deploy.reconstruction.least_squares import damped

__all__ = ["Consumer", "Step", "eliminate"]

COMPACTED_BELOW = 0.75
"""The matrices are compacted once this share of their columns is left."""


@dataclass(frozen=True)
class Consumer:
    """A layer that reads the channels of a group.

    Attributes:
        gram: centred, (columns, columns), float64.
        weights: (columns, outputs).
        channels: those of the group's channels that it reads, ascending.
        columns: the columns that belong to each of ``channels``, (channels, k); other columns stay.
        scale: what its squared errors are divided by before those of several consumers are added.
    """

    gram: torch.Tensor
    weights: torch.Tensor
    channels: torch.Tensor
    columns: torch.Tensor
    scale: float


@dataclass(frozen=True)
class Step:
    """One removal: the channel, how many are left, and the total error of all removed ones."""

    dropped: int
    left: int
    error: float
    _states: Sequence["_State"]

    def weights(self) -> list[torch.Tensor]:
        """Each consumer's best weights (columns, outputs) now, zero at removed columns; float64."""
        return [state.whole_weights() for state in self._states]


def eliminate(consumers: Sequence[Consumer], width: int, smallest: int = 1) -> Iterator[Step]:
    """Remove ``width`` channels one by one until ``smallest`` are left, the cheapest for all consumers first.

    ``Step.weights`` returns those of the latest step.
    """
    states = [_State(consumer, width) for consumer in consumers]
    costs = torch.zeros(width, dtype=torch.float64)
    left, error = width, 0.0
    while left > smallest:
        total = sum((state.costs().cpu() for state in states), costs)
        dropped = int(total.argmin())
        error += max(0.0, float(total[dropped]))
        costs[dropped] = torch.inf
        left -= 1
        for state in states:
            state.drop(dropped)
        yield Step(dropped, left, error, states)


class _State:
    """Inverse Gram matrix and weights of one consumer, of the columns that are left."""

    def __init__(self, consumer: Consumer, width: int) -> None:
        self._inverse = damped(consumer.gram[None]).inverse()[0]
        self._weights = consumer.weights.double().clone()
        self._scale, self._width = consumer.scale, width
        self._left = consumer.channels.clone()
        self._columns = torch.full((width, consumer.columns.shape[1]), -1, device=consumer.columns.device)
        self._columns[consumer.channels] = consumer.columns
        self._whole_size = len(self._weights)
        self._alive = torch.ones(self._whole_size, dtype=torch.bool, device=self._weights.device)
        self._kept = torch.arange(self._whole_size, device=self._weights.device)  # columns that the matrices still have
        self._place = self._kept.clone()  # of each column in the matrices

    def costs(self) -> torch.Tensor:
        """Scaled squared error that removing each channel would add; (width,), 0 for those that are not read."""
        columns = self._place[self._columns[self._left]]  # (channels, k)
        blocks = self._inverse[columns[:, :, None], columns[:, None, :]]
        weights: torch.Tensor = self._weights[columns]
        if columns.shape[1] > 1:
            weights = torch.linalg.solve_triangular(torch.linalg.cholesky(blocks), weights, upper=False)
            found = weights.square().sum((1, 2))
        else:
            found = weights.square().sum((1, 2)) / blocks[:, 0, 0]
        costs = torch.zeros(self._width, dtype=found.dtype, device=found.device)
        costs[self._left] = found / self._scale
        return costs

    def drop(self, channel: int) -> None:
        """Remove a channel and let the others compensate."""
        still = self._left != channel
        if bool(still.all()):
            return
        self._left = self._left[still]
        gone = self._columns[channel]
        place = self._place[gone]
        across = self._inverse[:, place]
        factor = torch.linalg.cholesky(across[place])
        half = torch.linalg.solve_triangular(factor, across.mT, upper=False)  # (k, columns)
        own = torch.linalg.solve_triangular(factor, self._weights[place], upper=False)
        self._weights.addmm_(half.mT, own, alpha=-1)
        self._inverse.addmm_(half.mT, half, alpha=-1)
        self._weights[place] = 0
        self._alive[gone] = False
        if int(self._alive.sum()) < COMPACTED_BELOW * len(self._kept):
            self._compact()

    def whole_weights(self) -> torch.Tensor:
        """Weights of all columns, zero where they are removed."""
        whole = self._weights.new_zeros(self._whole_size, self._weights.shape[1])
        whole[self._kept] = self._weights
        return whole

    def _compact(self) -> None:
        inside = self._alive[self._kept]
        self._inverse = self._inverse[inside][:, inside]
        self._weights = self._weights[inside]
        self._kept = self._kept[inside]
        self._place[self._kept] = torch.arange(len(self._kept), device=self._kept.device)
