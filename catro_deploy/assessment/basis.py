"""The metric on the validation images that decisions are based on: accuracy, or agreement with the original."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import is_unlabelled
from catro_deploy.records import Decision, Metric
from catro_deploy.report.wording import loss_words, one_image_words
from catro_deploy.statistics.agreement import accuracy_of, predictions_of
from catro_deploy.statistics.divergence import mean_change_cost_nats
from catro_deploy.statistics.intervals import largest_unseen_loss, wilson
from catro_deploy.units import counted

__all__ = ["LARGEST_HONEST_ACCURACY", "Basis", "Limits", "basis_of", "resolution_warning", "strictest"]

Floats = NDArray[np.float32]

LARGEST_HONEST_ACCURACY = 0.999
"""An original with a higher accuracy on the validation images was probably trained on them."""
ROUNDING = 1e-9


@dataclass(frozen=True)
class Limits:
    """What a network has to keep: a score and, if there are too few images to count predictions, a small divergence.

    ``largest_kl_nats`` bounds ``scaled_kl_nats``.
    """

    least_score: float
    largest_kl_nats: float | None = None


class Tried(Protocol):
    """A record of a network that was evaluated on the validation images."""

    @property
    def agreement(self) -> float | None:
        """Agreement with the original, a fraction."""

    @property
    def validation_accuracy(self) -> float | None:
        """Accuracy on the validation images, a fraction."""


def strictest(one: Limits, other: Limits) -> Limits:
    """The limits that satisfy both; the two must have the same basis."""
    bounds = [limits.largest_kl_nats for limits in (one, other) if limits.largest_kl_nats is not None]
    return Limits(max(one.least_score, other.least_score), min(bounds, default=None))


@dataclass(frozen=True)
class Basis:
    """The metric of a decision: ``accuracy``, or ``agreement`` with the original.

    Attributes:
        metric: which of the two.
        expected: the class that each image should be given, shape (n,): its label, or the original's own prediction.
        original_accuracy: of the original on these images, a fraction; None without labels.
        reason: why it is not accuracy; empty if it is.
        change_cost_nats: the divergence that it takes to change a prediction of the original, mean over the images;
            None if there are enough images to count the predictions that changed.
    """

    metric: Metric
    expected: NDArray[np.int64]
    original_accuracy: float | None
    reason: str = ""
    change_cost_nats: float | None = None

    @property
    def original_score(self) -> float:
        """The original's score, a fraction."""
        return 1.0 if self.metric == "agreement" or self.original_accuracy is None else self.original_accuracy

    def score(self, logits: Floats) -> float:
        """Accuracy or agreement of ``logits`` (n, classes), a fraction."""
        return accuracy_of(logits, self.expected)

    def recorded_score(self, tried: "Tried") -> float | None:
        """Accuracy or agreement of a network that was ``tried``; None if it was not evaluated."""
        return tried.agreement if self.metric == "agreement" else tried.validation_accuracy

    def limits(self, score: float, kl_nats: float | None, allowed: float) -> Limits:
        """The limits that allow a loss of ``allowed`` percentage points from this ``score`` and divergence.

        In nats, the allowed loss is the divergence that changes that share of the original's predictions.
        """
        least, cost = max(0.0, score - allowed / 100), self.change_cost_nats
        if cost is None:
            return Limits(least)
        return Limits(least, (kl_nats or 0.0) + allowed / 100 * cost)

    def keeps(self, score: float, kl_nats: float | None, limits: Limits) -> bool:
        """Whether a network of this ``score`` and divergence is within ``limits``.

        If there are too few images, the score rules out only what is too low for chance to explain (95%, by Wilson);
        the divergence, which does not change in steps of one image, decides the rest.
        """
        if limits.largest_kl_nats is None:
            return score >= limits.least_score - ROUNDING
        _, possible = wilson(score, len(self.expected))
        close = kl_nats is not None and kl_nats <= limits.largest_kl_nats + ROUNDING
        return possible >= limits.least_score - ROUNDING and close

    @property
    def record(self) -> Decision:
        """The basis in the record of a decision."""
        return Decision(
            metric=self.metric,
            metric_reason=self.reason,
            validation_images=len(self.expected),
            original_validation_accuracy=self.original_accuracy,
        )


def basis_of(original: Floats, labels: NDArray[np.int64], allowed: float | None = None) -> Basis:
    """The basis for decisions on images with ``labels`` (n,) and the original's logits ``original``.

    It is agreement with the original if labels are not known, if the original classifies nearly all images correctly
    (it was then probably trained on them, and no network could be as good on new ones), or if one image is more than
    the ``allowed`` points of accuracy: a gain by chance would otherwise compensate for any loss. In the last case,
    divergence counts as well, with or without labels.
    """
    one = 100 / len(labels)
    cost = mean_change_cost_nats(original) if allowed and one > allowed else None
    predictions = predictions_of(original)
    if is_unlabelled(labels):
        return Basis("agreement", predictions, None, "the images have no labels", cost)
    accuracy = accuracy_of(original, labels)
    if cost is not None:
        share = loss_words(float(f"{one:.2g}"))
        reason = f"one of {counted(len(labels), 'validation image')} is {share}, more than the {allowed:g} allowed"
        return Basis("agreement", predictions, accuracy, reason, cost)
    if accuracy > LARGEST_HONEST_ACCURACY:
        reason = f"the original has {accuracy:.2%} of the validation images right, and was probably trained on them"
        return Basis("agreement", predictions, accuracy, reason)
    return Basis("accuracy", labels, accuracy)


def resolution_warning(images: int, allowed: float) -> str:
    """A warning that ``images`` validation images cannot show a loss within ``allowed`` points; empty if they can.

    They cannot if the 95% interval of the loss exceeds it even if no prediction changes.
    """
    unseen = 100 * largest_unseen_loss(images)
    if not allowed or unseen <= allowed:
        return ""
    return (
        f"{counted(images, 'validation image')} cannot resolve a loss of {loss_words(allowed)}: "
        f"{one_image_words(images)}, and even if no prediction changed, the 95% interval of the loss would reach "
        f"{unseen:.2g}. Hold out more images ([data] validation), or allow more (max_drop)."
    )
