"""Ridge regression from sums over rows: the closed form that reconstructs a layer.

All sums are over rows x (columns) and targets t (outputs), for g independent problems at once, as in a grouped
convolution. The ridge pulls the solution towards given weights instead of zero, so a layer whose inputs carry little
information keeps its weights.
"""

import torch

from catro_deploy.errors import NumericsError
from catro_deploy.reconstruction.gram import GramSum

__all__ = ["DampedGram", "Moments", "damped", "factored", "r_squared", "solve_from_rows", "with_ridge"]

RIDGE = 1e-3
"""As a share of the Gram matrix's mean diagonal entry; weights change less along directions weaker than this."""
ROUNDING = 1e-12
"""Rounding errors of float64 sums in a Gram matrix, as a share of its largest diagonal entry."""
JITTER = 1e-9
"""Share of the largest diagonal entry that is added to the diagonal where rounding has made a Gram matrix indefinite;
multiplied by ten until that suffices."""

GRAM_BLOCK, GRAM_BLOCKS = 192, 8
"""Columns of a Gram matrix computed at a time, together with those after them, which saves half of a large matrix; and
the maximum number of such blocks, since each has a cost."""


class Moments:
    """First and second moments of rows and their targets, in float64.

    Rows are summed as differences from the mean of the first ones: where feature maps hardly vary, float32 would lose
    the variance against the mean.

    Attributes:
        count: number of rows so far.
    """

    def __init__(self, groups: int, columns: int, outputs: int, device: torch.device) -> None:
        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(groups, *shape, dtype=torch.float64, device=device)

        self.count = 0
        block = max(GRAM_BLOCK, -(-columns // GRAM_BLOCKS))
        self._gram, self._cross = GramSum(groups, columns, block, device), zeros(columns, outputs)
        self._row_sum, self._target_sum, self._target_squares = zeros(columns), zeros(outputs), zeros(outputs)
        self._origin, self._target_origin = zeros(1, columns), zeros(1, outputs)

    def add(self, rows: torch.Tensor, targets: torch.Tensor | None = None) -> None:
        """Add ``rows`` (g, n, columns), and their ``targets`` (g, n, outputs) if there are any."""
        if not self.count:
            self._origin = rows.mean(1, keepdim=True)
            self._target_origin = self._target_origin if targets is None else targets.mean(1, keepdim=True)
        self.count += rows.shape[1]
        rows = rows - self._origin
        self._gram.add(rows)
        self._row_sum += rows.sum(1, dtype=torch.float64)
        if targets is not None:
            targets = targets - self._target_origin
            self._cross += rows.mT @ targets
            self._target_sum += targets.sum(1, dtype=torch.float64)
            self._target_squares += targets.double().square().sum(1)

    def gram(self) -> torch.Tensor:
        """Sums of x x', shape (g, columns, columns)."""
        mean = self.mean()
        return self.centred_gram().addcmul_(self.count * mean[:, :, None], mean[:, None, :])

    def centred_gram(self) -> torch.Tensor:
        """Sums of (x - mean)(x - mean)', shape (g, columns, columns)."""
        mean = self._row_sum / max(self.count, 1)
        return self._gram.whole().addcmul_(self._row_sum[:, :, None], mean[:, None, :], value=-1)

    def mean(self) -> torch.Tensor:
        """Mean of the rows, (g, columns)."""
        return self._origin[:, 0].double() + self._row_sum / max(self.count, 1)

    def _target_mean(self) -> torch.Tensor:
        return self._target_origin[:, 0].double() + self._target_sum / max(self.count, 1)

    def _centred_cross(self) -> torch.Tensor:
        return self._cross - self._row_sum[:, :, None] * (self._target_sum / max(self.count, 1))[:, None, :]

    def solve(self, weights: torch.Tensor, *, bias: bool, ridge: float = RIDGE) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights (g, columns, outputs) and biases (g, outputs) that predict the targets best.

        Minimises |t - W'x - b|^2 + ridge * mean(diagonal) * |W - ``weights``|^2 summed over rows. The ridge does not
        apply to b, which is zero without ``bias``.
        """
        before, mean, target_mean = weights.double(), self.mean(), self._target_mean()
        gram, cross = (self.centred_gram() if bias else self.gram()), self._centred_cross()
        if not bias:
            cross = cross + self.count * mean[:, :, None] * target_mean[:, None, :]
        found = before + damped(gram, ridge).solve(cross - gram @ before)
        return found, target_mean - _times(found, mean) if bias else torch.zeros_like(target_mean)

    def explained(self, weights: torch.Tensor, offset: torch.Tensor) -> float:
        """R^2 of W'x + b over all outputs: 1 - squared error / variance of the targets; 1 where both are 0."""
        variance = self._target_squares - self._target_sum.square() / max(self.count, 1)
        about_mean = (
            variance - 2 * (weights * self._centred_cross()).sum(1) + (weights * (self.centred_gram() @ weights)).sum(1)
        )
        missed = self._target_mean() - _times(weights, self.mean()) - offset
        error = about_mean.clamp(min=0) + self.count * missed.square()
        squares = float(variance.sum() + self.count * self._target_mean().square().sum())
        return r_squared(float(error.sum()), float(variance.clamp(min=0).sum()), squares)

    def output_moments(self, weights: torch.Tensor, columns: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and biased variance over the rows of the contribution of ``columns`` to W'x, both (g, outputs)."""
        own, count = weights[:, columns], max(self.count, 1)
        squares = (own * (self._gram.whole()[:, columns, columns] @ own)).sum(1) / count
        shift = _times(own, self._row_sum[:, columns]) / count
        return _times(own, self.mean()[:, columns]), (squares - shift.square()).clamp(min=0)


class DampedGram:
    """Cholesky factors of Gram matrices (g, columns, columns) with a ridge on their diagonals."""

    def __init__(self, matrix: torch.Tensor) -> None:
        self._factor = factored(matrix)

    def solve(self, right: torch.Tensor) -> torch.Tensor:
        """The inverse times ``right`` (g, columns, outputs)."""
        return torch.cholesky_solve(right, self._factor)

    def inverse(self) -> torch.Tensor:
        """The inverse, (g, columns, columns)."""
        return torch.cholesky_inverse(self._factor)


def factored(matrix: torch.Tensor) -> torch.Tensor:
    """Cholesky factors (g, columns, columns) of matrices that are positive definite up to rounding.

    Raises:
        NumericsError: an entry is not finite.
    """
    factor: torch.Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    added = JITTER * matrix.diagonal(dim1=1, dim2=2).abs().amax(1).clamp(min=1e-30)
    while bool(failed.any()):
        if not bool(torch.isfinite(matrix).all()):
            raise NumericsError("A feature map is not finite.", "Check the checkpoint and the normalisation.")
        more = added.where(failed > 0, torch.zeros_like(added))
        matrix = matrix + torch.diag_embed(more[:, None].expand(matrix.shape[:2]))
        factor, failed = torch.linalg.cholesky_ex(matrix)
        added = added * 10
    return factor


def damped(gram: torch.Tensor, ridge: float = RIDGE) -> DampedGram:
    """Factors of ``with_ridge(gram)``."""
    return DampedGram(with_ridge(gram, ridge))


def with_ridge(gram: torch.Tensor, ridge: float = RIDGE) -> torch.Tensor:
    """``gram`` (g, columns, columns) + ridge * mean(diagonal) * identity; columns that are always zero do no harm."""
    diagonal = gram.diagonal(dim1=1, dim2=2)
    added = ridge * diagonal.mean(1) + ROUNDING * diagonal.amax(1)
    added = added.where(added > 0, torch.ones_like(added))  # all columns are constant: any weights are optimal
    damped_gram = gram.clone()
    damped_gram.diagonal(dim1=1, dim2=2).add_(added[:, None])
    return damped_gram


def solve_from_rows(
    rows: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, *, bias: bool, ridge: float = RIDGE
) -> tuple[torch.Tensor, torch.Tensor]:
    """The solution of ``Moments.solve`` for fewer rows (n, columns) than columns, by an (n, n) system instead.

    ``targets`` are (n, outputs), ``weights`` (columns, outputs). Uses the identity (X'X + kI)^-1 X' = X'(XX' + kI)^-1.
    """
    x, t, before = rows.double(), targets.double(), weights.double()
    row_mean = x.mean(0) if bias else torch.zeros_like(x[0])
    target_mean = t.mean(0) if bias else torch.zeros_like(t[0])
    x, t = x - row_mean, t - target_mean
    kernel = x @ x.mT
    added = ridge * float(x.square().sum(0).mean()) or 1.0
    kernel.diagonal().add_(added)
    found = before + x.mT @ torch.cholesky_solve(t - x @ before, factored(kernel[None])[0])
    return found, target_mean - row_mean @ found


def r_squared(error: float, variance: float, squares: float) -> float:
    """The share of the targets' ``variance`` that is explained; all are sums, ``squares`` that of the squared targets.

    Targets that hardly vary, such as a gate that is always closed, count as explained if the error is as small.
    """
    rounding = ROUNDING * squares
    return 1 - error / variance if variance > rounding else float(error <= rounding)


def _times(weights: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """W'x for one row (g, columns) of each problem."""
    return (weights * row[:, :, None]).sum(1)
