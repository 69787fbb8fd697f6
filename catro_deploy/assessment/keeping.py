"""Which network is kept after fine-tuning: the trained one or, if training made it worse, the one before it."""

import math

import numpy as np
from numpy.typing import NDArray

from catro_deploy.assessment.basis import basis_of
from catro_deploy.data.base import is_unlabelled
from catro_deploy.records import Choice, Score
from catro_deploy.statistics.agreement import accuracy_of, agreement_of, gains_and_losses
from catro_deploy.statistics.intervals import paired_difference

__all__ = ["choose"]

Floats = NDArray[np.float32]


def choose(original: Floats, before: Floats, after: Floats, labels: NDArray[np.int64]) -> Choice:
    """Compare the networks' logits (n, classes) on the validation images with ``labels`` (n,).

    Accuracy (or agreement with the original, if that is the basis by ``basis_of``) decides if the 95% interval of the
    difference does not contain 0. Otherwise the network with the smaller divergence from the original is kept, but
    always the trained one if it gains more images than chance usually gives (a standard error).
    """
    expected = basis_of(original, labels).expected
    gained, lost = gains_and_losses(before, after, expected)
    low, high = paired_difference(gained, lost, len(labels))
    scores = [_score(original, logits, labels) for logits in (before, after)]
    by_chance = low <= 0 and gained - lost <= math.sqrt(gained + lost)
    worse = high < 0 or (by_chance and _divergence(scores[1]) > _divergence(scores[0]))
    return Choice("pruned" if worse else "finetuned", len(labels), *scores)


def _divergence(score: Score) -> float:
    return float("inf") if score.mean_kl_nats is None else score.mean_kl_nats


def _score(original: Floats, logits: Floats, labels: NDArray[np.int64]) -> Score:
    agreement = agreement_of(original, logits)
    accuracy = None if is_unlabelled(labels) else accuracy_of(logits, labels)
    return Score(accuracy, agreement.share, agreement.mean_kl_nats)
