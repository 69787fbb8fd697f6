"""Batches of a loader of the caller's, such as a torch DataLoader: checked, and only those of the wanted classes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from catro_deploy.errors import DataError

__all__ = ["Batch", "Loader", "WantedClasses", "class_samples", "peek"]

Batch = tuple[torch.Tensor, torch.Tensor]
"""Normalised images, float32 (n, channels, height, width), and their labels, int64 (n,)."""

Loader = Iterable[Sequence[torch.Tensor]]
"""Anything that gives pairs of images and labels, batch by batch."""

FORM = (
    "It must give pairs of normalised float images (n, channels, height, width) and integer labels (n,), as a torch "
    "DataLoader over a dataset of (tensor, int) does."
)
FEWEST = 2


@dataclass(frozen=True)
class WantedClasses:
    """Which of the labels 0 to ``total`` - 1 count: their place in ``indices`` is their new label."""

    total: int
    indices: tuple[int, ...]

    def batches(self, loader: Loader, image_shape: Sequence[int]) -> Iterator[Batch]:
        """The images of ``loader`` whose class is wanted, labelled 0..k-1; a batch without any is left out.

        Raises:
            DataError: what the loader gives is not images of ``image_shape`` with labels of the known classes.
        """
        places = torch.full((self.total,), -1)
        places[list(self.indices)] = torch.arange(len(self.indices))
        for batch in loader:
            images, labels = _checked(batch)
            if images.shape[1:] != torch.Size(image_shape):
                raise DataError(
                    f"The loader gives images of shape {tuple(images.shape[1:])} after ones of {tuple(image_shape)}.",
                    "Resize or crop all of them to one shape.",
                )
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.total:
                raise DataError(
                    f"The loader gives labels from {int(labels.min())} to {int(labels.max())}; there are "
                    f"{self.total} classes.",
                    f"Labels must be the places of the logits, 0 to {self.total - 1}.",
                )
            place = places[labels]
            wanted = place >= 0
            if wanted.any():
                yield (images, place) if wanted.all() else (images[wanted], place[wanted])


def peek(loader: Loader) -> tuple[torch.Tensor, Loader]:
    """The images of the first batch of ``loader``, and all of its batches, to be gone through once.

    Raises:
        DataError: it is empty, or its first batch is not images with labels.
    """
    batches = iter(loader)
    first = next(batches, None)
    if first is None:
        raise DataError("The loader is empty.", "Give one that can be gone through: a generator is used up once.")
    images, _ = _checked(first)
    return images, chain([first], batches)


def class_samples(
    loader: Loader,
    wanted: WantedClasses,
    names: Sequence[str],
    image_shape: Sequence[int],
    per_class: int,
    batch_size: int,
) -> list[tuple[torch.Tensor, int]]:
    """The first ``per_class`` images of each wanted class (fewer where there are fewer), in batches of one class each.

    The loader is gone through once, no further than needed. ``names`` are those of the wanted classes.

    Raises:
        DataError: a class has fewer than two images, or the loader's batches are not as they must be.
    """
    found: list[list[torch.Tensor]] = [[] for _ in wanted.indices]
    missing = [per_class] * len(found)
    for images, labels in wanted.batches(loader, image_shape):
        for label in set(labels.tolist()):
            taken = images[labels == label][: missing[label]]
            found[label].append(taken)
            missing[label] -= len(taken)
        if not any(missing):
            break
    samples = []
    for label, (name, pieces) in enumerate(zip(names, found, strict=True)):
        count = per_class - missing[label]
        if count < FEWEST:
            raise DataError(
                f"The loader gives {count} image(s) of the class {name}; scatter within a class needs "
                f"at least {FEWEST}.",
                "Let it give more of them, or leave the class out of `classes`.",
            )
        samples += [(piece, label) for piece in torch.split(torch.cat(pieces), batch_size)]
    return samples


def _checked(batch: object) -> Batch:
    if not isinstance(batch, Sequence) or len(batch) != 2 or not all(isinstance(part, torch.Tensor) for part in batch):
        what = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, Sequence) else "")
        raise DataError(f"A batch of the loader is {what}, not a pair of tensors.", FORM)
    images, labels = batch
    if images.ndim != 4 or not images.is_floating_point():
        raise DataError(f"The images of a batch are {images.dtype} {tuple(images.shape)}.", FORM)
    if labels.shape != images.shape[:1] or labels.is_floating_point() or labels.is_complex():
        raise DataError(
            f"The labels of a batch are {labels.dtype} {tuple(labels.shape)} for {len(images)} images.", FORM
        )
    return images.detach().float().cpu(), labels.detach().long().cpu()
