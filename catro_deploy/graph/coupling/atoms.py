"""Atoms of channels: sets that can only be removed together, found by following a forward pass."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["CONSTANT", "Atoms", "Labels", "constant"]

Labels = NDArray[np.int64]
"""The atom of each index of one axis of a tensor; CONSTANT where the index may not be removed."""

CONSTANT = -1


def constant(count: int) -> Labels:
    """Labels of an axis whose indices must all stay."""
    return np.full(count, CONSTANT, np.int64)


class Atoms:
    """Disjoint sets of labels (union-find); a set that must stay has a reason."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._reasons: dict[int, str] = {}
        self._sizes: dict[int, int] = {}
        self._ties: dict[int, tuple[int, str]] = {}

    def fresh(self, count: int) -> Labels:
        """New labels, each its own atom."""
        first = len(self._parents)
        self._parents.extend(range(first, first + count))
        return np.arange(first, first + count, dtype=np.int64)

    def root(self, label: int) -> int:
        """The representative label of the atom of ``label``."""
        while self._parents[label] != label:
            self._parents[label] = self._parents[self._parents[label]]
            label = self._parents[label]
        return label

    def roots(self, labels: Labels) -> Labels:
        """``root`` of each label; CONSTANT stays."""
        return np.array([CONSTANT if label == CONSTANT else self.root(label) for label in labels.tolist()], np.int64)

    def join(self, left: Labels, right: Labels, reason: str) -> None:
        """Merge each pair of labels into one atom; a label paired with CONSTANT must stay, for ``reason``."""
        for one, other in set(zip(left.tolist(), right.tolist(), strict=True)):
            if CONSTANT in (one, other):
                self.fix((one, other), reason)
            else:
                self._join(self.root(one), self.root(other))

    def tie(self, left: Labels, right: Labels, reason: str) -> None:
        """``join`` channels of one tensor, and record ``reason`` as what couples them."""
        for one, other in set(zip(left.tolist(), right.tolist(), strict=True)):
            if CONSTANT not in (one, other) and (roots := {self.root(one), self.root(other)}) and len(roots) == 2:
                smaller = min(self._sizes.get(root, 1) for root in roots)
                known = max((self._ties.get(root, (0, "")) for root in roots), key=lambda tie: tie[0])
                self._ties[self.root(one)] = (smaller, reason) if smaller > known[0] else known
        self.join(left, right, reason)

    def tied_by(self, label: int) -> str:
        """The operation that joined the largest parts of the atom of ``label`` within a tensor, if any."""
        return self._ties.get(self.root(label), (0, ""))[1]

    def fix(self, labels: Iterable[int], reason: str) -> None:
        """Record why the atoms of ``labels`` must stay; the first reason is kept."""
        for label in set(labels) - {CONSTANT}:
            self._reasons.setdefault(self.root(label), reason)

    def reason(self, label: int) -> str:
        """Why the atom of ``label`` must stay; empty if it need not."""
        return self._reasons.get(self.root(label), "")

    def _join(self, kept: int, gone: int) -> None:
        if kept != gone:
            self._parents[gone] = kept
            self._sizes[kept] = self._sizes.get(kept, 1) + self._sizes.pop(gone, 1)
            ties = [self._ties[root] for root in (kept, gone) if root in self._ties]
            if ties:
                self._ties[kept] = max(ties, key=lambda tie: tie[0])
            if gone in self._reasons:
                self._reasons.setdefault(kept, self._reasons.pop(gone))
