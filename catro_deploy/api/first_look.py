"""The first look at the original, on images from the caller's loader, before pruning."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn.functional import interpolate

from catro_deploy.assessment.inputs import PreparedImages, better_input, evenly_spaced, logits_of, usual_normalisations
from catro_deploy.assessment.suspicions import Terms, look_at, most_images
from catro_deploy.data.base import UNKNOWN
from catro_deploy.data.loader import Batch, Loader, WantedClasses, open_loader, without_labels
from catro_deploy.data.pixels import scaled, standardise, undo_standardise
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.progress import Progress
from catro_deploy.pruning.classifier import scoring_batch_size
from catro_deploy.pruning.cutting import Classifier
from catro_deploy.records import FirstLook
from catro_deploy.report.images import accuracy_words
from catro_deploy.settings import Settings
from catro_deploy.training.compute import choose_device

__all__ = ["first_look"]

VALIDATION, GIVEN = "validation images", "images of the loader"


def first_look(
    original: Classifier,
    samples: Sequence[Labelled],
    validation: Loader | None,
    settings: Settings,
    progress: Progress,
    *,
    labelled: bool,
) -> FirstLook:
    """Run ``original`` on images from ``validation`` or, without it, from ``samples``; return what is suspicious.

    Raises:
        DataError: the validation loader's batches are not valid.
    """
    kind = GIVEN if validation is None else VALIDATION
    most = most_images(original)
    batches = _given(samples, labelled, most) if validation is None else _held_out(original, validation, most)
    if not batches:
        return FirstLook(0, None, None, None, (), kind)
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    device, at_once = choose_device(settings.prune.compute), scoring_batch_size(original, settings.prune)

    def better(share: float) -> str:
        inputs = other_inputs(_some(images), original.mean, original.std)
        return better_input(original.model, inputs, _some(labels).numpy(), share, at_once, device)

    with progress.task("Looking at the original network", len(images)) as task:
        logits = logits_of(original.model, _input("", images), at_once, device, task)
    names = [original.classes[index] for index in original.wanted]
    look = look_at(logits, labels.numpy(), names, original.input_shape, _terms(kind), better)
    progress.note(f"original: {accuracy_words(look)}")
    return look


def other_inputs(images: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> Iterator[PreparedImages]:
    """Normalised ``images`` at other sizes, in other normalisations, and in BGR order, with one change at a time.

    Normalisations are tried if ``mean`` and ``std`` are known, or if the images look like pixels that were never
    normalised.
    """
    _, channels, height, width = images.shape
    for factor in (2, 0.5):
        size = int(height * factor), int(width * factor)
        if min(size):
            resized = interpolate(images, size, mode="bilinear", antialias=True)
            yield _input(f"images of {size[1]}x{size[0]}", resized)
    pixels = _pixels(images, mean, std)
    if pixels is not None:
        for words, *usual in usual_normalisations(channels):
            yield _input(words, standardise(pixels, *usual))
    if channels == 3:
        yield _input("the channels in the order BGR", images.flip(1))


def _pixels(images: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor | None:
    """The pixels in 0..1 behind ``images``; None if they are not known."""
    if mean:
        return undo_standardise(images, mean, std)
    if images.min() < 0:
        return None
    return scaled(images) if images.max() > 1 else images


def _given(samples: Sequence[Labelled], labelled: bool, most: int) -> list[Batch]:
    """At most ``most`` evenly spaced images of all ``samples``; no others are copied."""
    ends = np.cumsum([len(images) for images, _ in samples])
    places = evenly_spaced(int(ends[-1]), most)
    found: list[Batch] = []
    for (images, label), end in zip(samples, ends, strict=True):
        mine = places[(places >= end - len(images)) & (places < end)] - (end - len(images))
        found.append((images[torch.from_numpy(mine)], torch.full((len(mine),), label if labelled else UNKNOWN)))
    return found


def _held_out(original: Classifier, validation: Loader, most: int) -> list[Batch]:
    """The first ``most`` images of ``validation`` whose class is wanted."""
    opened, shape = open_loader(validation), original.input_shape
    wanted = WantedClasses(len(original.classes), original.wanted)
    batches = wanted.batches(opened.batches, shape) if opened.labelled else without_labels(opened.batches, shape)
    found: list[Batch] = []
    missing = most
    for images, labels in batches:
        found.append((images[:missing], labels[:missing]))
        missing -= len(found[-1][1])
        if not missing:
            break
    return found


def _some(tensor: torch.Tensor) -> torch.Tensor:
    """Evenly spaced rows of ``tensor``, enough to try other inputs."""
    return tensor[torch.from_numpy(evenly_spaced(len(tensor)))]


def _input(words: str, images: torch.Tensor) -> PreparedImages:
    return PreparedImages(words, len(images), lambda start, stop: images[start:stop])


def _terms(kind: str) -> Terms:
    return Terms(
        images=kind,
        size="of the loader's images",
        normalisation="of the loader",
        channels="as the loader gives them",
        weights="of model",
        reorder="A label must be the index of the class among the logits: 0 {first}, 1 {second}, ...",
    )
