"""Logarithms of probabilities, used as logits, from which they differ by a constant for each image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["log_of", "log_softmax"]

# Softmax in float32 underflows not far below this: smaller values are raised to it.
SMALLEST = np.float32(1e-30)


def log_of(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logarithms of ``probabilities``, none below that of ``SMALLEST``."""
    found: NDArray[np.float32] = np.log(np.maximum(probabilities.astype(np.float32), SMALLEST))
    return found


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """What ``log_of`` returns for the softmax of ``logits`` (n, classes)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return np.maximum(found, np.log(SMALLEST))
