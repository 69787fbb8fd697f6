"""Atoms of channels: what must be kept or dropped together, joined as a forward pass shows what hangs together."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["CONSTANT", "Atoms", "Labels", "constant"]

Labels = NDArray[np.int64]
"""The atom of each index of one axis of a tensor; CONSTANT where the index may not be dropped."""

CONSTANT = -1


def constant(count: int) -> Labels:
    """Labels of an axis that may lose no index."""
    return np.full(count, CONSTANT, np.int64)


class Atoms:
    """Disjoint sets of labels (union-find); a set that may not be dropped has a reason."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._reasons: dict[int, str] = {}

    def fresh(self, count: int) -> Labels:
        """New labels, each an atom of its own."""
        first = len(self._parents)
        self._parents.extend(range(first, first + count))
        return np.arange(first, first + count, dtype=np.int64)

    def root(self, label: int) -> int:
        """The label that stands for the atom of ``label``."""
        while self._parents[label] != label:
            self._parents[label] = self._parents[self._parents[label]]
            label = self._parents[label]
        return label

    def roots(self, labels: Labels) -> Labels:
        """``root`` of each label; CONSTANT stays."""
        return np.array([CONSTANT if label == CONSTANT else self.root(label) for label in labels.tolist()], np.int64)

    def join(self, left: Labels, right: Labels, reason: str) -> None:
        """Make one atom of each pair of labels; one that meets a CONSTANT may not be dropped, for ``reason``."""
        for one, other in set(zip(left.tolist(), right.tolist(), strict=True)):
            if CONSTANT in (one, other):
                self.fix((one, other), reason)
            else:
                self._join(self.root(one), self.root(other))

    def fix(self, labels: Iterable[int], reason: str) -> None:
        """Note why the atoms of ``labels`` may not be dropped; the first reason counts."""
        for label in set(labels) - {CONSTANT}:
            self._reasons.setdefault(self.root(label), reason)

    def reason(self, label: int) -> str:
        """Why the atom of ``label`` may not be dropped, or nothing."""
        return self._reasons.get(self.root(label), "")

    def _join(self, kept: int, gone: int) -> None:
        if kept != gone:
            self._parents[gone] = kept
            if gone in self._reasons:
                self._reasons.setdefault(kept, self._reasons.pop(gone))
