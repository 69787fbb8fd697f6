"""Comparison of classifiers' predictions with labels or, without labels, with the predictions of another network."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from catro_deploy.records import Agreement, ClassAgreement

__all__ = [
    "accuracy_of",
    "agreement_by_class",
    "agreement_of",
    "gains_and_losses",
    "largest_difference",
    "largest_finite",
    "log_softmax",
    "mean_confidence",
    "mean_kl_nats",
    "predictions_of",
    "share_right",
]

Floats = NDArray[np.float32] | NDArray[np.float64]
NO_PREDICTION = -1
BLOCK_VALUES = 1 << 18
"""Number of logits that are processed at a time, since the files that hold them may be larger than memory."""


def predictions_of(logits: Floats) -> NDArray[np.int64]:
    """The class of each image, shape (n,), from ``logits`` (n, classes); -1 where a logit is not finite."""
    predictions = np.full(len(logits), NO_PREDICTION, np.int64)
    for rows in _blocks(logits):
        finite = np.isfinite(logits[rows]).all(axis=1)
        predictions[rows][finite] = logits[rows].argmax(axis=1)[finite]
    return predictions


def accuracy_of(logits: Floats, expected: NDArray[np.int64]) -> float:
    """The share of images for which ``logits`` (n, classes) yield the ``expected`` class (n,), 0 to 1.

    A row with a logit that is not finite never counts as correct.
    """
    return share_right(predictions_of(logits), expected)


def share_right(predictions: NDArray[np.int64], expected: NDArray[np.int64]) -> float:
    """The share of ``predictions`` (n,), from ``predictions_of``, that equal the ``expected`` classes (n,), 0 to 1."""
    return float(((predictions == expected) & (predictions != NO_PREDICTION)).mean())


def largest_difference(one: Floats, other: Floats) -> float:
    """The largest absolute difference of two sets of logits (n, classes); NaN or infinity if a logit is not finite."""
    return float(np.max([np.abs(one[rows] - other[rows]).max() for rows in _blocks(one)]))


def largest_finite(logits: Floats) -> float:
    """The largest absolute value among the finite ``logits`` (n, classes)."""
    found = 0.0
    for rows in _blocks(logits):
        values = logits[rows]
        found = max(found, float(np.abs(values[np.isfinite(values)]).max(initial=0)))
    return found


def gains_and_losses(before: Floats, after: Floats, expected: NDArray[np.int64]) -> tuple[int, int]:
    """The numbers of images that only ``after`` classifies as ``expected`` (n,), and that only ``before`` does.

    Both are logits of shape (n, classes).
    """
    right_before, right_after = (predictions_of(logits) == expected for logits in (before, after))
    return int((right_after & ~right_before).sum()), int((right_before & ~right_after).sum())


def agreement_of(reference: Floats, logits: Floats) -> Agreement:
    """Agreement of ``logits`` with those of a ``reference``; both (n, classes), of the same images, at least one."""
    return Agreement(accuracy_of(logits, predictions_of(reference)), mean_kl_nats(reference, logits))


def agreement_by_class(reference: Floats, logits: Floats, names: Sequence[str]) -> tuple[ClassAgreement, ...]:
    """Agreement by the class that the reference predicts; classes that it never predicts are left out.

    Both sets of logits are (n, classes); ``names`` are the names of their columns.
    """
    expected, given = predictions_of(reference), predictions_of(logits)
    return tuple(
        ClassAgreement(name, int((expected == k).sum()), float((given[expected == k] == k).mean()))
        for k, name in enumerate(names)
        if (expected == k).any()
    )


def mean_kl_nats(reference: Floats, logits: Floats, scale: float = 1.0) -> float | None:
    """Mean over the images of KL(softmax(reference) || softmax(scale * logits)), in nats; both (n, classes).

    Computed in float64 from log-probabilities, to avoid a division by a probability that rounds to 0. None if a logit
    is not finite.
    """
    divergence = np.empty(len(reference))
    for rows in _blocks(reference):
        if not (np.isfinite(reference[rows]).all() and np.isfinite(logits[rows]).all()):
            return None
        log_p, log_q = log_softmax(reference[rows]), log_softmax(logits[rows].astype(np.float64) * scale)
        divergence[rows] = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    return max(float(divergence.mean()), 0.0)  # rounding may make it negative for equal distributions


def mean_confidence(logits: Floats) -> float:
    """Mean over the images of the largest softmax output of finite ``logits`` (n, classes)."""
    return float(np.exp(log_softmax(logits)).max(axis=1).mean())


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    """Logarithms of the softmax outputs of finite ``logits`` (n, classes)."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def _blocks(logits: Floats) -> Iterator[slice]:
    """Slices of the rows of ``logits`` (n, classes), in order; at least one row each."""
    rows = max(1, BLOCK_VALUES // max(1, logits.shape[1]))
    for start in range(0, len(logits), rows):
        yield slice(start, start + rows)
