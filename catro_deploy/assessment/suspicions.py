"""Signs in the original's predictions that its input size, normalisation, colour order or classes are wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import is_unlabelled
from catro_deploy.graph.coupling.trace import list_layers
from catro_deploy.pruning.cutting import Classifier
from catro_deploy.records import FirstLook
from catro_deploy.report.wording import count, percent
from catro_deploy.statistics.agreement import mean_confidence, predictions_of
from catro_deploy.statistics.guessing import (
    fitting_order,
    is_below,
    is_flat,
    is_no_better_than_guessing,
    is_one_sided,
    most_frequent_share,
)

__all__ = ["Terms", "look_at", "most_images"]

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

MOST_IMAGES, FEWEST_IMAGES = 2000, 200
MACS = 1e12
"""Budget of multiply-accumulates for a look at the original, unless FEWEST_IMAGES need more: about 20 s on one core."""

FAR = 0.05
"""An accuracy that is more than this below the stated one counts as far below it."""

FAR_FOR_SOME = 0.2
"""Likewise if the stated accuracy is for more classes: some of them may be harder than the others."""

ORDER_SHOWN = 12

GUESSING = "the original is no better than guessing on {}"
REORDERED = "the original's outputs probably belong to other classes"
UNSURE = "the original has almost no confidence in its predictions"
PROBABILITIES = (
    "All outputs of the original are between 0 and 1: it probably returns probabilities, not logits. Their softmax is "
    "nearly uniform, so that confidences, divergences, distillation and exported probabilities would be wrong. Remove "
    "the softmax or sigmoid at the end of its forward; [export] output adds one to the exported file."
)


@dataclass(frozen=True)
class Terms:
    """The user's names for the things that may be wrong, and where they are set.

    Attributes:
        images: those that the original was run on.
        size: where their size is set.
        normalisation: where mean and standard deviation are set.
        channels: how the order of colours is given.
        weights: where the weights come from.
        reorder: what to do about the order of the classes; ``{first}`` and ``{second}`` stand for the first two in the
            right order.
    """

    images: str
    size: str
    normalisation: str
    channels: str
    weights: str
    reorder: str

    def causes(self, input_shape: tuple[int, int, int]) -> str:
        """Common mistakes in the input of a network, the most likely first."""
        channels, height, width = input_shape
        order = f"RGB or BGR ({self.channels}), " if channels == 3 else ""
        return (
            f"Likely causes, in this order: size ({self.size}, here {height}x{width}), mean and std "
            f"({self.normalisation}), {order}the order of the classes, weights from another training run "
            f"({self.weights})."
        )


def most_images(original: Classifier) -> int:
    """The largest number of images that ``original`` is run on."""
    macs = sum(layer.macs for layer in list_layers(original.model, original.input_shape))
    return min(MOST_IMAGES, max(FEWEST_IMAGES, int(MACS / max(macs, 1))))


def look_at(
    logits: Floats,
    labels: Labels,
    names: Sequence[str],
    input_shape: tuple[int, int, int],
    terms: Terms,
    better: Callable[[float], str],
    stated: float | None = None,
    stated_classes: int | None = None,
) -> FirstLook:
    """What the original's ``logits`` (n, classes) for images with ``labels`` (n,) show, and what is suspicious.

    ``names`` are those of the classes, ``stated`` is the accuracy that the original's checkpoint states, and
    ``stated_classes`` the number of classes that it is for, if there are more. ``better`` takes the accuracy and
    returns a sentence on another input with which far more are right, or an empty one.
    """
    if unlabelled := is_unlabelled(labels):
        look, problem = _without_labels(logits, names, terms)
    else:
        look, problem = _with_labels(predictions_of(logits), labels, names, terms)
    look = replace(look, stated=stated, stated_classes=None if stated is None else stated_classes)
    warnings = [PROBABILITIES] if _are_probabilities(logits) else []
    if problem := problem or _stated_words(look):
        found = [problem]
        if look.invalid != REORDERED:
            found += ["" if unlabelled else better(look.accuracy or 0.0), terms.causes(input_shape)]
        warnings.append(" ".join(filter(None, found)))
    return replace(look, warnings=tuple(warnings))


def _are_probabilities(logits: Floats) -> bool:
    """Whether the network seems to end in a softmax or sigmoid."""
    if not logits.size or not ((logits >= 0) & (logits <= 1)).all():
        return False
    return bool(np.allclose(logits.sum(axis=1), 1, atol=1e-3)) or float(logits.max()) > 0.5  # small logits are not


def _without_labels(logits: Floats, names: Sequence[str], terms: Terms) -> tuple[FirstLook, str]:
    """What can be seen without labels: whether nearly all predictions are the same, or have a low confidence."""
    look, chance = FirstLook(len(logits), None, None, None, kind=terms.images), 1 / len(names)
    if not np.isfinite(logits).all() or len(names) == 1:  # pruning refuses the former, the latter shows nothing
        return look, ""
    predictions, confidence = predictions_of(logits), mean_confidence(logits)
    look = replace(look, confidence=confidence, most_frequent=most_frequent_share(predictions))
    shown = f"{count(len(predictions))} {terms.images}"
    if is_flat(confidence, len(names)):
        return replace(look, invalid=UNSURE), (
            f"The original has almost no confidence in its predictions for {shown}: its mean confidence is "
            f"{percent(confidence)}, and guessing among {len(names)} classes gives {percent(chance)}."
        )
    if is_one_sided(predictions):
        name = names[int(np.bincount(predictions).argmax())]
        return look, (
            f"The original gives {percent(most_frequent_share(predictions))} of {shown} the same class, {name}. Unless "
            "nearly all of them belong to it, the input is wrong."
        )
    return look, ""


def _with_labels(predictions: Labels, labels: Labels, names: Sequence[str], terms: Terms) -> tuple[FirstLook, str]:
    """How many are right, and whether that is no better than guessing."""
    images, chance, right = len(labels), most_frequent_share(labels), int((predictions == labels).sum())
    look = FirstLook(images, right / images, None, None, kind=terms.images)
    found = f"The original has {percent(right / images)} of {count(images)} {terms.images} right"
    if order := fitting_order(predictions, labels, len(names)):
        reordered = float((np.append(order, -1)[predictions] == labels).mean())
        return replace(look, invalid=REORDERED), _order_words(names, order, right / images, reordered, images, terms)
    if is_no_better_than_guessing(right, images, chance):
        return replace(look, invalid=GUESSING.format(terms.images)), (
            f"{found}, which is no better than guessing: always predicting the most frequent class gives "
            f"{percent(chance)}."
        )
    return look, ""


def _stated_words(look: FirstLook) -> str:
    """Whether the accuracy is far below what the checkpoint states."""
    far = FAR if look.stated_classes is None else FAR_FOR_SOME
    if look.accuracy is None or look.stated is None:
        return ""
    if not is_below(round(look.accuracy * look.images), look.images, look.stated - far):
        return ""
    right = f"{percent(look.accuracy)} of {count(look.images)} {look.kind} right"
    return (
        f"The original has {right}, far below the {percent(look.stated)} that its checkpoint states{look.stated_for}."
    )


def _order_words(
    names: Sequence[str], order: Sequence[int], own: float, reordered: float, images: int, terms: Terms
) -> str:
    changed = [f"{names[k]} is {names[order[k]]}" for k in range(len(names)) if order[k] != k]
    more = len(changed) - ORDER_SHOWN
    mapping = ", ".join(changed[:ORDER_SHOWN]) + (f" and {more} more" if more > 0 else "")
    remedy = terms.reorder.format(first=names[order[0]], second=names[order[1]])
    return (
        f"The order of the classes is probably wrong: the original has {percent(own)} of {count(images)} "
        f"{terms.images} right, and {percent(reordered)} if its outputs belong to other classes (the output called "
        f"{mapping}). {remedy}"
    )
