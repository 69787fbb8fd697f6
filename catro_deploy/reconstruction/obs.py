"""Which channels a layer needs least: Optimal Brain Surgeon on Gram matrices.

For a layer with weights W that reads rows x, H is the inverse of the (damped) Gram matrix. Without the columns c of a
channel, the best weights are W - H_:c (H_cc)^-1 W_c, which adds tr(W_c' (H_cc)^-1 W_c) to the squared error; the
inverse becomes H - H_:c (H_cc)^-1 H_c: (Hassibi and Stork, 1993, with a channel's columns instead of one weight).
Channels are removed one by one, the cheapest first, which gives the order and the error of every width. The cost of a
channel needs no weights, only W_c W_c', which is downdated as well: it is small, however many outputs there are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from catro_deploy.reconstruction.least_squares import damped

__all__ = ["Consumer", "Step", "eliminate"]

COMPACTED_BELOW = 0.75
"""The matrices are compacted once less than this share of their columns is left."""
COLLECTED = 32
"""Removed columns whose updates of the matrices are applied together."""


@dataclass(frozen=True)
class Consumer:
    """A layer that reads the channels of a group.

    Attributes:
        gram: of its inputs, centred if it has a bias, (columns, columns), float64.
        weights: (columns, outputs).
        channels: the channels of the group that it reads, ascending.
        columns: the columns that belong to each of ``channels``, (channels, k); other columns are never removed.
        scale: divisor of its squared errors before those of several consumers are added.
    """

    gram: torch.Tensor
    weights: torch.Tensor
    channels: torch.Tensor
    columns: torch.Tensor
    scale: float


@dataclass(frozen=True)
class Step:
    """One removal: the channel, and the total error of all removed so far."""

    dropped: int
    error: float


def eliminate(consumers: Sequence[Consumer], width: int, smallest: int = 1) -> Iterator[Step]:
    """Remove channels one by one until ``smallest`` of ``width`` are left, the cheapest for all consumers first."""
    states = [_State(consumer, width) for consumer in consumers]
    removed = torch.zeros(width, dtype=torch.float64)
    error = 0.0
    for _ in range(width - smallest):
        costs = sum((state.costs().cpu() for state in states), removed)
        dropped = int(costs.argmin())
        error += max(0.0, float(costs[dropped]))
        removed[dropped] = torch.inf
        for state in states:
            state.drop(dropped)
        yield Step(dropped, error)


class _State:
    """Inverse Gram matrix H and weights W of one consumer, and the blocks H_cc and W_c W_c' of each channel.

    What removals subtract from H and W, half' half and half' own, is collected and subtracted together: passes over
    large matrices take most of the time. The blocks are always up to date.
    """

    def __init__(self, consumer: Consumer, width: int) -> None:
        self._scale, self._width = consumer.scale, width
        self._inverse = damped(consumer.gram[None]).inverse()[0]
        self._weights = _narrowed(consumer.weights.double())
        self._half, self._own = self._inverse[:0], self._weights[:0]
        self._left, self._columns = consumer.channels, consumer.columns  # of the remaining channels
        self._alive = torch.ones(len(self._inverse), dtype=torch.bool, device=self._inverse.device)
        own = self._weights[self._columns]
        self._products = own @ own.mT  # (channels, k, k)
        self._blocks = self._inverse[self._columns[:, :, None], self._columns[:, None, :]]

    def costs(self) -> torch.Tensor:
        """Scaled squared error that removing each channel would add; (width,), 0 for channels that are not read."""
        if self._blocks.shape[1] > 1:
            parts = torch.cholesky_solve(self._products, torch.linalg.cholesky(self._blocks))
        else:
            parts = self._products / self._blocks
        costs = torch.zeros(self._width, dtype=parts.dtype, device=parts.device)
        costs[self._left] = parts.diagonal(dim1=1, dim2=2).sum(1) / self._scale
        return costs

    def drop(self, channel: int) -> None:
        """Remove a channel and let the others compensate."""
        still = self._left != channel
        if bool(still.all()):
            return
        gone = self._columns[~still][0]
        earlier = self._half[:, gone].mT
        across = self._inverse[gone] - earlier @ self._half  # (k, columns): rows, for H is symmetric
        factor = torch.linalg.cholesky(across[:, gone])
        half = torch.linalg.solve_triangular(factor, across, upper=False)
        own = torch.linalg.solve_triangular(factor, self._weights[gone] - earlier @ self._own, upper=False)
        # Replacing W by W - half' own subtracts half' moved and its transpose from W W'.
        moved = (self._weights @ own.mT).mT - own @ self._own.mT @ self._half - own @ own.mT @ half / 2
        self._left, self._columns = self._left[still], self._columns[still]
        halves = half.mT[self._columns]  # (channels, k, k)
        lost = halves @ moved.mT[self._columns].mT
        self._products = self._products[still] - lost - lost.mT
        self._blocks = self._blocks[still] - halves @ halves.mT
        self._half, self._own = torch.cat([self._half, half]), torch.cat([self._own, own])
        self._alive[gone] = False
        if len(self._half) >= COLLECTED:
            self._apply_updates()

    def _apply_updates(self) -> None:
        self._inverse.addmm_(self._half.mT, self._half, alpha=-1)
        self._weights.addmm_(self._half.mT, self._own, alpha=-1)
        if int(self._alive.sum()) < COMPACTED_BELOW * len(self._alive):
            place = self._alive.cumsum(0) - 1
            self._columns = place[self._columns]
            self._inverse = self._inverse[self._alive][:, self._alive]
            self._weights = self._weights[self._alive]
            self._alive = self._alive[self._alive]
        self._half, self._own = self._inverse[:0], self._weights[:0]


def _narrowed(weights: torch.Tensor) -> torch.Tensor:
    """A copy with the same W W', and no more outputs than columns."""
    columns, outputs = weights.shape
    return torch.linalg.qr(weights.mT, mode="r").R.mT.contiguous() if outputs > columns else weights.clone()
