"""Gram matrices summed over many rows; only half of each symmetric matrix is stored, in half of the memory."""

import torch

__all__ = ["GramSum"]


class GramSum:
    """Sums of x x' over rows x with ``columns`` entries, for ``groups`` independent matrices, in float64.

    The matrix is computed and stored in blocks of ``block`` rows, each from the column of its first row onwards.
    """

    def __init__(self, groups: int, columns: int, block: int, device: torch.device) -> None:
        self._shape, self._device = (groups, columns, columns), device
        self._starts = range(0, columns, block)
        self._stripes = [
            torch.zeros(groups, min(block, columns - start), columns - start, dtype=torch.float64, device=device)
            for start in self._starts
        ]

    @property
    def nbytes(self) -> int:
        """Number of allocated bytes."""
        return sum(stripe.nbytes for stripe in self._stripes)

    def add(self, rows: torch.Tensor) -> None:
        """Add x x' of the rows x of ``rows`` (g, n, columns)."""
        for start, stripe in zip(self._starts, self._stripes, strict=True):
            stripe += rows[:, :, start : start + stripe.shape[1]].mT @ rows[:, :, start:]

    def whole(self) -> torch.Tensor:
        """The full matrices of sums (g, columns, columns), newly allocated."""
        matrix = torch.empty(self._shape, dtype=torch.float64, device=self._device)
        for start, stripe in zip(self._starts, self._stripes, strict=True):
            end = start + stripe.shape[1]
            matrix[:, start:end, start:] = stripe
            matrix[:, end:, start:end] = stripe[:, :, stripe.shape[1] :].mT
        return matrix
