"""Ridge regression from sums over rows: the closed form that reconstructs a layer.

All sums are over rows x (columns) and targets t (outputs), for g independent problems at once, as a grouped convolution
has. The ridge pulls towards given weights instead of zero, so a layer whose inputs say little keeps what it knew.
"""

import torch

__all__ = ["DampedGram", "Moments", "damped", "solve_from_rows", "with_ridge"]

RIDGE = 1e-3
"""Share of the mean diagonal of the Gram matrix; the weights move less along directions weaker than that."""
ROUNDING = 1e-12
"""Share of the largest diagonal entry that keeps a Gram matrix of zeros positive definite."""


class Moments:
    """First and second moments of rows and their targets, in float64.

    Attributes:
        count: rows so far.
        gram: sums of x x', shape (g, columns, columns).
        cross: sums of x t', shape (g, columns, outputs).
        row_sum: sums of x, shape (g, columns).
        target_sum: sums of t, shape (g, outputs).
        target_squares: sums of t squared, shape (g, outputs).
    """

    def __init__(self, groups: int, columns: int, outputs: int, device: torch.device) -> None:
        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(groups, *shape, dtype=torch.float64, device=device)

        self.count = 0
        self.gram, self.cross = zeros(columns, columns), zeros(columns, outputs)
        self.row_sum, self.target_sum, self.target_squares = zeros(columns), zeros(outputs), zeros(outputs)

    def add(self, rows: torch.Tensor, targets: torch.Tensor | None = None) -> None:
        """Take in ``rows`` (g, n, columns), and their ``targets`` (g, n, outputs) if there are any."""
        self.count += rows.shape[1]
        self.gram += rows.mT @ rows
        self.row_sum += rows.sum(1, dtype=torch.float64)
        if targets is not None:
            self.cross += rows.mT @ targets
            self.target_sum += targets.sum(1, dtype=torch.float64)
            self.target_squares += targets.double().square().sum(1)

    def centred_gram(self) -> torch.Tensor:
        """Sums of (x - mean)(x - mean)', shape (g, columns, columns)."""
        mean = self.row_sum / max(self.count, 1)
        return self.gram - self.row_sum[:, :, None] * mean[:, None, :]

    def _centred_cross(self) -> torch.Tensor:
        mean = self.row_sum / max(self.count, 1)
        return self.cross - mean[:, :, None] * self.target_sum[:, None, :]

    def solve(self, weights: torch.Tensor, *, bias: bool, ridge: float = RIDGE) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights (g, columns, outputs) and biases (g, outputs) that predict the targets best.

        Minimised is |t - W'x - b|^2 + ridge * mean(diagonal) * |W - ``weights``|^2 summed over rows; b is free of the
        ridge, and zero where no ``bias`` is wanted.
        """
        before = weights.double()
        gram = self.centred_gram() if bias else self.gram
        cross = self._centred_cross() if bias else self.cross
        found = before + damped(gram, ridge).solve(cross - gram @ before)
        offset = torch.zeros_like(self.target_sum)
        if bias:
            offset = (self.target_sum - _times(found, self.row_sum)) / max(self.count, 1)
        return found, offset

    def explained(self, weights: torch.Tensor, offset: torch.Tensor) -> float:
        """R^2 of W'x + b over all outputs: 1 - squared error / variance of the targets, which is 1 where both are 0."""
        error = (
            self.target_squares
            - 2 * (weights * self.cross).sum(1)
            + (weights * (self.gram @ weights)).sum(1)
            - 2 * offset * self.target_sum
            + 2 * offset * _times(weights, self.row_sum)
            + self.count * offset.square()
        )
        variance = self.target_squares - self.target_sum.square() / max(self.count, 1)
        total = float(variance.clamp(min=0).sum())
        lost = float(error.clamp(min=0).sum())
        return 1 - lost / total if total > 0 else float(lost <= 0)

    def output_moments(self, weights: torch.Tensor, columns: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and biased variance over the rows of what ``columns`` contribute to W'x, both (g, outputs)."""
        own, row_sum, count = weights[:, columns], self.row_sum[:, columns], max(self.count, 1)
        mean = _times(own, row_sum) / count
        squares = (own * (self.gram[:, columns, columns] @ own)).sum(1) / count
        return mean, (squares - mean.square()).clamp(min=0)


class DampedGram:
    """Cholesky factors of Gram matrices (g, columns, columns) with something added to their diagonals."""

    def __init__(self, matrix: torch.Tensor) -> None:
        self._factor = torch.linalg.cholesky(matrix)

    def solve(self, right: torch.Tensor) -> torch.Tensor:
        """The inverse times ``right`` (g, columns, outputs)."""
        return torch.cholesky_solve(right, self._factor)

    def inverse(self) -> torch.Tensor:
        """The inverse, (g, columns, columns)."""
        return torch.cholesky_inverse(self._factor)


def damped(gram: torch.Tensor, ridge: float = RIDGE) -> DampedGram:
    """Factors of ``with_ridge(gram)``."""
    return DampedGram(with_ridge(gram, ridge))


def with_ridge(gram: torch.Tensor, ridge: float = RIDGE) -> torch.Tensor:
    """``gram`` (g, columns, columns) + ridge * mean(diagonal) * identity; columns that are always zero do no harm."""
    diagonal = gram.diagonal(dim1=1, dim2=2)
    added = ridge * diagonal.mean(1) + ROUNDING * diagonal.amax(1)
    added = added.where(added > 0, torch.ones_like(added))  # all columns are constant: any weights do as well
    return gram + torch.diag_embed(added[:, None].expand_as(diagonal))


def solve_from_rows(
    rows: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, *, bias: bool, ridge: float = RIDGE
) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``Moments.solve`` finds, for fewer rows (n, columns) than columns: an (n, n) system instead.

    ``targets`` are (n, outputs), ``weights`` (columns, outputs). By the identity (X'X + kI)^-1 X' = X'(XX' + kI)^-1.
    """
    x, t, before = rows.double(), targets.double(), weights.double()
    row_mean = x.mean(0) if bias else torch.zeros_like(x[0])
    target_mean = t.mean(0) if bias else torch.zeros_like(t[0])
    x, t = x - row_mean, t - target_mean
    kernel = x @ x.mT
    added = ridge * float(x.square().sum(0).mean()) or 1.0
    kernel.diagonal().add_(added)
    found = before + x.mT @ torch.cholesky_solve(t - x @ before, torch.linalg.cholesky(kernel))
    return found, target_mean - row_mean @ found


def _times(weights: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """W'x for one row (g, columns) of each problem."""
    return (weights * row[:, :, None]).sum(1)
