"""Whether a classifier's predictions are better than guesses, and whether another order of outputs fits the labels."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import betainc

__all__ = [
    "fitting_order",
    "is_below",
    "is_flat",
    "is_no_better_than_guessing",
    "is_one_sided",
    "most_frequent_share",
]

SIGNIFICANCE = 0.01
"""Significance level: an observation that is less probable than this by chance is significant."""

FLAT = 0.1
"""A confidence is flat if it is above chance by less than this share of the distance from chance to certainty."""

NEARLY_ALL = 0.95

Labels = NDArray[np.int64]


def is_no_better_than_guessing(right: int, images: int, chance: float) -> bool:
    """Whether guessing, which is right with probability ``chance``, would explain ``right`` correct predictions.

    A one-sided binomial test. Since few images prove little, an accuracy nearer to 1 than to ``chance`` always passes.
    """
    halfway = (1 + chance) / 2
    return _at_least(right, images, chance) > SIGNIFICANCE and right < halfway * images


def is_below(right: int, images: int, share: float) -> bool:
    """Whether ``right`` is so low that a true accuracy of ``share`` can be ruled out; a one-sided binomial test."""
    return 1 - _at_least(right + 1, images, share) < SIGNIFICANCE


def is_flat(confidence: float, classes: int) -> bool:
    """Whether a mean ``confidence`` is close to that of a guess among ``classes`` classes."""
    chance = 1 / classes
    return confidence - chance < FLAT * (1 - chance)


def is_one_sided(predictions: Labels) -> bool:
    """Whether nearly all ``predictions`` (n,) are the same class, and a share of one half can be ruled out.

    A one-sided binomial test; at least 7 equal predictions are needed. A prediction of -1 means that there is none.
    """
    given = predictions[predictions >= 0]
    if not len(given):
        return False
    most = int(np.bincount(given).max())
    return most >= NEARLY_ALL * len(predictions) and _at_least(most, len(predictions), 0.5) < SIGNIFICANCE


def most_frequent_share(labels: Labels) -> float:
    """The share of the most frequent of ``labels`` (n,): the accuracy of a classifier that always predicts it."""
    return float(np.bincount(labels).max() / len(labels))


def fitting_order(predictions: Labels, labels: Labels, classes: int) -> tuple[int, ...] | None:
    """The actual class of each output, if another order of the classes fits far better; else None.

    The order is chosen on every second image and tested on the others. There it must be right significantly more often
    (a binomial test on the images for which only one of the two orders is right), and leave at most half of the errors.
    ``predictions`` and ``labels`` are (n,), each from 0 to ``classes`` - 1; a prediction of -1 is ignored.
    """
    tried = _assign(predictions[::2], labels[::2], classes)
    others, truth = predictions[1::2], labels[1::2]
    valid = others >= 0
    own, new = valid & (others == truth), valid & (tried[others] == truth)
    gained, lost = int((new & ~own).sum()), int((own & ~new).sum())
    halved = (~new).sum() * 2 <= (~own).sum()
    if not (gained > lost and halved and _at_least(gained, gained + lost, 0.5) < SIGNIFICANCE):
        return None
    return tuple(int(k) for k in _assign(predictions, labels, classes))


def _assign(predictions: Labels, labels: Labels, classes: int) -> Labels:
    """The permutation of classes with the highest accuracy; ties go to the one nearest to the present order."""
    valid = predictions >= 0
    table = np.zeros((classes, classes))
    np.add.at(table, (predictions[valid], labels[valid]), 1)
    _, columns = linear_sum_assignment(table + np.eye(classes) / (2 * classes), maximize=True)
    return np.asarray(columns, np.int64)


def _at_least(right: int, images: int, share: float) -> float:
    """The probability that at least ``right`` of ``images`` are right, each with probability ``share``."""
    if right <= 0:
        return 1.0
    return 0.0 if right > images else float(betainc(right, images - right + 1, share))
