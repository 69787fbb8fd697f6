"""What networks are judged by on the validation images, where something is chosen by them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import is_unlabelled
from catro_deploy.records import Decision, Measure
from catro_deploy.statistics.agreement import accuracy_of, answers_of
from catro_deploy.statistics.intervals import largest_unseen_loss

__all__ = ["LARGEST_HONEST_ACCURACY", "Basis", "basis_of", "resolution_warning"]

Floats = NDArray[np.float32]

LARGEST_HONEST_ACCURACY = 0.999
"""An original that scores more on the validation images was probably trained on them: its accuracy says little."""


@dataclass(frozen=True)
class Basis:
    """What networks are judged by: ``accuracy``, or ``agreement`` with the original.

    Attributes:
        measure: which of the two.
        expected: the class that each image should be given, shape (n,): its label, or the original's own answer.
        original_accuracy: of the original on these images, a fraction; None without labels.
        reason: why it is not accuracy; empty if it is.
    """

    measure: Measure
    expected: NDArray[np.int64]
    original_accuracy: float | None
    reason: str = ""

    def score(self, logits: Floats) -> float:
        """Accuracy or agreement of ``logits`` (n, classes), a fraction."""
        return accuracy_of(logits, self.expected)

    @property
    def record(self) -> Decision:
        """What the record of a decision says of it."""
        return Decision(
            judged_by=self.measure,
            judged_by_reason=self.reason,
            validation_images=len(self.expected),
            original_validation_accuracy=self.original_accuracy,
        )


def basis_of(original: Floats, labels: NDArray[np.int64], allowed: float | None = None) -> Basis:
    """What to judge by on images with ``labels`` (n,) that the original network gives the logits ``original``.

    Agreement with the original, where nobody knows the labels, where the original has nearly all of them right (it was
    then probably trained on these images, and no network could be as good on new ones), and where one image is more
    than the ``allowed`` points of accuracy: a gain by chance would otherwise make up for any loss.
    """
    if is_unlabelled(labels):
        return Basis("agreement", answers_of(original), None, "the images have no labels")
    accuracy = accuracy_of(original, labels)
    if accuracy > LARGEST_HONEST_ACCURACY:
        reason = f"the original has {accuracy:.2%} of the validation images right, and was probably trained on them"
        return Basis("agreement", answers_of(original), accuracy, reason)
    if allowed and 100 / len(labels) > allowed:
        one = f"one of {len(labels)} validation images is {100 / len(labels):.2g} points"
        reason = f"{one}, more than the {allowed:g} allowed"
        return Basis("agreement", answers_of(original), accuracy, reason)
    return Basis("accuracy", labels, accuracy)


def resolution_warning(images: int, allowed: float) -> str:
    """That so many validation ``images`` cannot show a loss within ``allowed`` points; empty if they can.

    They cannot where the 95% interval of the loss goes beyond it even if no answer changes.
    """
    unseen = 100 * largest_unseen_loss(images)
    if not allowed or unseen <= allowed:
        return ""
    return (
        f"{images} validation images cannot resolve a loss of {allowed:g} points: one image is {100 / images:.2g} "
        f"points, and even if no answer changed, the 95% interval of the loss would reach {unseen:.2g}. "
        f"Hold out more images ([data] validation), or allow more (max_drop)."
    )
