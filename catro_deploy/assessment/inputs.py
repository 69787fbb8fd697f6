"""A network's logits for images that are preprocessed according to the settings or in other common ways."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from catro_deploy.errors import CatroError
from catro_deploy.progress import Silent, Task
from catro_deploy.report.wording import count, percent
from catro_deploy.statistics.agreement import accuracy_of
from catro_deploy.statistics.guessing import is_below

__all__ = ["PreparedImages", "better_input", "evenly_spaced", "logits_of", "usual_normalisations"]

TRIED_IMAGES = 100

NORMALISATIONS = (
    ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # ImageNet's
    ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),  # pixels in 0..1
    ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)),  # pixels in 0..255
)
"""Means and standard deviations that are common in training."""


@dataclass(frozen=True)
class PreparedImages:
    """Images as a network receives them.

    Attributes:
        words: a description of how they are prepared.
        images: how many there are.
        batch: the images from one index up to another, normalised: float32 (n, channels, height, width).
    """

    words: str
    images: int
    batch: Callable[[int, int], torch.Tensor]


def logits_of(
    model: nn.Module, given: PreparedImages, at_once: int, device: torch.device, task: Task
) -> NDArray[np.float32]:
    """Logits (n, classes) of ``model``, in eval mode, for all images of ``given``; the model is on the CPU afterwards.

    Raises:
        DataError: an image is missing or cannot be decoded.
    """
    logits = []
    try:
        model.to(device)
        with torch.inference_mode():
            for start in range(0, given.images, at_once):
                images = given.batch(start, min(start + at_once, given.images))
                logits.append(model(images.to(device)).float().cpu())
                task.advance(len(images))
    finally:
        model.cpu()
    return torch.cat(logits).numpy()


def better_input(
    model: nn.Module,
    inputs: Iterable[PreparedImages],
    labels: NDArray[np.int64],
    share: float,
    at_once: int,
    device: torch.device,
) -> str:
    """A sentence on the one of ``inputs`` with which far more than ``share`` are right; empty if there is none.

    ``labels`` are those of the images, which are the same for each of ``inputs``.
    """
    words, most = "", 0.0
    for tried in inputs:
        found = _accuracy(model, tried, labels, at_once, device)
        if found > most:
            words, most = tried.words, found
    far_more = most >= 2 * share or 1 - most <= (1 - share) / 2
    if not far_more or not is_below(int(share * len(labels)), len(labels), most):
        return ""
    return f"With {words} it has {percent(most)} of {count(len(labels))} of them right."


def evenly_spaced(total: int, most: int = TRIED_IMAGES) -> NDArray[np.int64]:
    """Evenly spaced indices of at most ``most`` of ``total`` images."""
    return np.linspace(0, total - 1, min(total, most)).round().astype(np.int64)


def usual_normalisations(channels: int) -> list[tuple[str, Sequence[float], Sequence[float]]]:
    """Description, mean and standard deviation of normalisations that are common in training."""
    found: list[tuple[str, Sequence[float], Sequence[float]]] = []
    for mean, std in NORMALISATIONS:
        written = (f"[{', '.join(f'{value:.4g}' for value in values[:channels])}]" for values in (mean, std))
        found.append(("mean = {} and std = {}".format(*written), mean[:channels], std[:channels]))
    return found


def _accuracy(
    model: nn.Module, tried: PreparedImages, labels: NDArray[np.int64], at_once: int, device: torch.device
) -> float:
    try:
        with Silent().task("", 0) as task:
            return accuracy_of(logits_of(model, tried, at_once, device, task), labels)
    except CatroError:
        raise
    except Exception:  # any error of a forward that takes images of one size only
        return 0.0
