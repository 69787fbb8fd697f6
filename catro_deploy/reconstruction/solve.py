"""Closed-form solution of one step: the weights whose outputs are closest to a target, on rows of some images."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from catro_deploy.reconstruction.least_squares import RIDGE, Moments, r_squared, solve_from_rows
from catro_deploy.reconstruction.rows import (
    Solvable,
    outputs_at,
    positions_of,
    rows_at,
    set_weight_matrix_,
    weight_matrix,
)

__all__ = ["LayerFit", "StepSolver"]

POSITIONS = 64
"""Positions used of each feature map; 128 gave no better results."""
SCARCITY = 0.3
"""The ridge is at least this many times the ratio of columns to rows.

A layer with one row per image, such as the last one of a classifier, has few rows: its weights would overfit them.
"""
LARGEST_COLUMNS = 8192
"""Wider layers are solved from at most this many rows, by a system of that size."""
CHUNK_BYTES = 2**26
"""Bytes of rows that are unfolded at a time."""


@dataclass(frozen=True)
class LayerFit:
    """How a layer was solved.

    Attributes:
        explained: R^2 of the step's target outputs: 1 is a perfect reconstruction.
        mean: mean of the layer's outputs without its bias, (outputs,).
        variance: their variance, (outputs,).
    """

    explained: float
    mean: torch.Tensor
    variance: torch.Tensor


class StepSolver:
    """Accumulates inputs of ``layers`` and targets for the sum of their outputs; solves the layers in place.

    ``images`` is the total number of images. A bias is solved for if one of the layers has one. ``outputs`` are the
    channels of the targets that the layers have; None means all.
    """

    def __init__(
        self,
        layers: Sequence[Solvable],
        positions: int,
        images: int,
        generator: torch.Generator,
        outputs: Sequence[int] | None = None,
    ) -> None:
        self._layers, self._generator = list(layers), generator
        self._matrices = [weight_matrix(layer) for layer in layers]
        self._outputs = None if outputs is None else torch.tensor(outputs, device=self._matrices[0].device)
        groups, _, width = self._matrices[0].shape
        self._sizes = [matrix.shape[1] for matrix in self._matrices]
        columns, rows = sum(self._sizes), images * min(POSITIONS, positions)
        self._ridge = max(RIDGE, SCARCITY * columns / max(1, rows))
        self._by_rows = groups == 1 and columns > min(rows, LARGEST_COLUMNS)
        most = LARGEST_COLUMNS // max(1, images) if self._by_rows else POSITIONS
        self._positions = max(1, min(POSITIONS, most))
        self._moments = Moments(groups, 0 if self._by_rows else columns, width, self._matrices[0].device)
        self._rows: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(self, inputs: Sequence[torch.Tensor], target: torch.Tensor, given: Sequence[torch.Tensor] = ()) -> None:
        """Add a batch: each layer's input, and the target for the sum of their outputs and the ``given`` values."""
        first = self._layers[0]
        positions = positions_of(first, target.shape, self._positions, self._generator)
        row_bytes = sum(self._sizes) * self._matrices[0].shape[0] * len(positions) * target.element_size()
        step = max(1, CHUNK_BYTES // max(1, row_bytes))
        given = [value.broadcast_to(self._output_shape(target)) for value in given]
        for start in range(0, len(target), step):
            part = slice(start, start + step)
            rows = torch.cat(
                [rows_at(layer, value[part], positions) for layer, value in zip(self._layers, inputs, strict=True)], 2
            )
            goals = outputs_at(first, target[part], positions, self._outputs)
            for value in given:
                goals = goals - outputs_at(first, value[part], positions)
            if self._by_rows:
                self._rows.append((rows[0].clone(), goals[0].clone()))
            else:
                self._moments.add(rows, goals)

    def _output_shape(self, target: torch.Tensor) -> list[int]:
        """Shape of the layers' outputs, which may have fewer channels than ``target``."""
        shape = list(target.shape)
        if self._outputs is not None:
            shape[-1 if isinstance(self._layers[0], nn.Linear) else 1] = len(self._outputs)
        return shape

    def solve_(self) -> list[LayerFit]:
        """Solve for the layers' weights and biases, and set them."""
        matrix = torch.cat(self._matrices, 1)
        with_bias = next((layer for layer in self._layers if layer.bias is not None), None)
        if self._by_rows:
            found, offset, explained = self._solved_by_rows(matrix[0], with_bias is not None)
        else:
            found, offset = self._moments.solve(matrix, bias=with_bias is not None, ridge=self._ridge)
            explained = self._moments.explained(found, offset)
        fits = []
        first = 0
        for layer, size in zip(self._layers, self._sizes, strict=True):
            own = slice(first, first + size)
            mean, variance = self._output_moments(found, own)
            set_weight_matrix_(layer, found[:, own].to(matrix.dtype))
            if layer.bias is not None:
                with torch.no_grad():
                    layer.bias.copy_(offset.flatten() if layer is with_bias else torch.zeros_like(layer.bias))
            fits.append(LayerFit(explained, mean.flatten(), variance.flatten()))
            first += size
        return fits

    def _solved_by_rows(self, matrix: torch.Tensor, bias: bool) -> tuple[torch.Tensor, torch.Tensor, float]:
        rows, goals = (torch.cat(parts) for parts in zip(*self._rows, strict=True))
        found, offset = solve_from_rows(rows, goals, matrix, bias=bias, ridge=self._ridge)
        goals = goals.double()
        lost = (rows.double() @ found + offset - goals).square().sum()
        variance = (goals - goals.mean(0)).square().sum()
        return found[None], offset[None], r_squared(float(lost), float(variance), float(goals.square().sum()))

    def _output_moments(self, found: torch.Tensor, own: slice) -> tuple[torch.Tensor, torch.Tensor]:
        if self._by_rows:
            outputs = torch.cat([rows[:, own].double() for rows, _ in self._rows]) @ found[0, own]
            return outputs.mean(0), outputs.var(0, correction=0)
        return self._moments.output_moments(found, own)
