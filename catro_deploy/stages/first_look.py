"""The original on validation images, before anything is pruned: what is wrong with its input or labels shows there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import Subset, is_unlabelled
from catro_deploy.data.sizes import image_sizes
from catro_deploy.graph.coupling.trace import list_layers
from catro_deploy.models.stated import stated_accuracy
from catro_deploy.progress import Progress
from catro_deploy.records import FirstLook
from catro_deploy.report.images import accuracy_words, images_words, size_warning
from catro_deploy.report.wording import count, percent
from catro_deploy.settings import Settings
from catro_deploy.stages.inputs import Sample, better_input, logits_of
from catro_deploy.stages.original import Original
from catro_deploy.statistics.agreement import answers_of
from catro_deploy.statistics.guessing import fitting_order, is_below, is_no_better_than_guessing, most_frequent_share

__all__ = ["first_look"]

Labels = NDArray[np.int64]

MOST_IMAGES, FEWEST_IMAGES = 2000, 200
MACS = 2e12
"""Multiply-accumulates that it shall take at most: half a minute of one core."""

FAR = 0.05
"""An accuracy that is lower than the checkpoint states by more than this is far below it."""

ORDER_SHOWN = 12


def first_look(original: Original, settings: Settings, progress: Progress) -> FirstLook:
    """Show validation images of the wanted classes to ``original``; say how many it has right, and what is suspicious.

    Evenly spaced ones of them, where all would take too long. Without labels nothing is computed.

    Raises:
        DataError: an image is missing or cannot be decoded.
        CheckpointError: the checkpoint cannot be read.
    """
    _, height, width = original.input_shape
    sizes = image_sizes(original.dataset)
    progress.note(f"images {images_words(sizes, width, height)}")
    resized = tuple(filter(None, [size_warning(sizes, width, height)]))
    held = Subset(original.dataset.validation, original.wanted)
    told = stated_accuracy(settings.model.checkpoint)
    if not len(held.labels) or is_unlabelled(held.labels):
        look = FirstLook(len(held.labels), None, told, sizes, resized)
    else:
        sample = _sample(original, held)
        with progress.task("Looking at the original network", len(sample.indices)) as task:
            answers = answers_of(logits_of(original, sample, settings, task))
        accuracy = float((answers == sample.labels).mean())
        found = _suspicions(original, sample, answers, told, settings)
        look = FirstLook(len(answers), accuracy, told, sizes, (*found, *resized))
    progress.note(f"original: {accuracy_words(look)}")
    for warning in look.warnings:
        progress.note(f"WARNING: {warning}")
    return look


def _sample(original: Original, held: Subset) -> Sample:
    macs = sum(layer.macs for layer in list_layers(original.model, original.input_shape))
    most = min(MOST_IMAGES, max(FEWEST_IMAGES, int(MACS / max(macs, 1))))
    total = len(held.labels)
    return Sample(held, np.linspace(0, total - 1, min(total, most)).round().astype(np.int64))


def _suspicions(
    original: Original, sample: Sample, answers: Labels, told: float | None, settings: Settings
) -> list[str]:
    """What is wrong with the answers, and what may be the cause; empty if nothing is."""
    labels, names = sample.labels, [original.classes[index] for index in original.wanted]
    right, images = int((answers == labels).sum()), len(labels)
    if order := fitting_order(answers, labels, len(names)):
        reordered = float((np.append(order, -1)[answers] == labels).mean())
        return [_order_words(names, order, right / images, reordered, images)]
    chance = most_frequent_share(labels)
    if is_no_better_than_guessing(right, images, chance):
        problem = (
            f"The original has {percent(right / images)} of {count(images)} validation images right, which is no "
            f"better than guessing: always answering the most frequent class gives {percent(chance)}."
        )
    elif told is not None and is_below(right, images, told - FAR):
        problem = (
            f"The original has {percent(right / images)} of {count(images)} validation images right, far below the "
            f"{percent(told)} that its checkpoint states."
        )
    else:
        return []
    return [" ".join(filter(None, [problem, better_input(original, sample, right, settings), _causes(original)]))]


def _causes(original: Original) -> str:
    _, height, width = original.input_shape
    channels = "RGB or BGR (images are given as RGB), " if original.input_shape[0] == 3 else ""
    return (
        f"Likely causes, in this order: size ([data], here {width}x{height}), mean and std ([model]), {channels}the "
        "order of the classes, weights of another training ([model] checkpoint)."
    )


def _order_words(names: Sequence[str], order: Sequence[int], own: float, reordered: float, images: int) -> str:
    changed = [f"{names[k]} is {names[order[k]]}" for k in range(len(names)) if order[k] != k]
    more = len(changed) - ORDER_SHOWN
    mapping = ", ".join(changed[:ORDER_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (
        f"The order of the classes is probably wrong: the original has {percent(own)} of {count(images)} validation "
        f"images right, and {percent(reordered)} if its outputs stand for other classes (what is called {mapping}). "
        "Give the classes in the order of its training: folders of images count in the order of their names, so "
        f"rename them (0_{names[order[0]]}, 1_{names[order[1]]}, ...), or open the images by a factory of your own."
    )
