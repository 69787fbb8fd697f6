"""Batches of the caller's loader, such as a torch DataLoader: validated, and reduced to the wanted classes.

A loader that yields images alone can be used where no labels are needed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from catro_deploy.data.base import UNKNOWN
from catro_deploy.errors import DataError
from catro_deploy.units import counted

__all__ = [
    "Batch",
    "Loader",
    "Opened",
    "WantedClasses",
    "class_samples",
    "image_batches",
    "image_samples",
    "open_loader",
    "without_labels",
]

Batch = tuple[torch.Tensor, torch.Tensor]
"""Normalised images, float32 (n, channels, height, width), and their labels, int64 (n,)."""

Loader = Iterable[Sequence[torch.Tensor] | torch.Tensor]
"""Any iterable of batches: pairs of images and labels or, where labels are not needed, images alone."""

FORM = (
    "It must give pairs of normalised float images (n, channels, height, width) and integer labels (n,), as a torch "
    "DataLoader over a dataset of (tensor, int) does."
)
FEWEST = 2


@dataclass(frozen=True)
class WantedClasses:
    """The wanted ones among the labels 0 to ``total`` - 1: their position in ``indices`` is their new label."""

    total: int
    indices: tuple[int, ...]

    def batches(self, loader: Loader, image_shape: Sequence[int]) -> Iterator[Batch]:
        """Yield the images of ``loader`` whose class is wanted, labelled 0..k-1; a batch without any is skipped.

        Raises:
            DataError: the loader does not yield images of ``image_shape`` with labels of the known classes.
        """
        places = torch.full((self.total,), -1)
        places[list(self.indices)] = torch.arange(len(self.indices))
        for batch in _iterated(loader):
            images, labels = _checked(batch)
            _require_shape(images, image_shape)
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.total:
                raise DataError(
                    f"The loader gives labels from {int(labels.min())} to {int(labels.max())}; there are "
                    f"{self.total} classes.",
                    f"Labels must be the indices of the logits, 0 to {self.total - 1}.",
                )
            place = places[labels]
            wanted = place >= 0
            if wanted.any():
                yield (images, place) if wanted.all() else (images[wanted], place[wanted])


@dataclass(frozen=True)
class Opened:
    """A loader whose first batch with images has been inspected.

    Attributes:
        images: those of that batch.
        labelled: whether it has labels.
        batches: that batch and all later ones, to be iterated once.
    """

    images: torch.Tensor
    labelled: bool
    batches: Loader


def open_loader(loader: Loader) -> Opened:
    """Inspect the first batch of ``loader`` with images.

    Raises:
        DataError: there is none, or it is neither images with labels nor images alone.
    """
    batches = _iterated(loader)
    for batch in batches:
        alone = _alone(batch)
        images = _checked(batch)[0] if alone is None else _checked_images(alone)
        if len(images):
            return Opened(images, alone is None, chain([batch], batches))
    raise DataError("The loader is empty.", "Give one that can be iterated again: a generator is used up once.")


def image_batches(loader: Loader, image_shape: Sequence[int]) -> Iterator[torch.Tensor]:
    """Yield the images of every batch of ``loader``, float32 (n, *image_shape), without their labels, if any.

    An empty batch is skipped.

    Raises:
        DataError: what the loader gives is not images of ``image_shape``.
    """
    for batch in _iterated(loader):
        alone = _alone(batch)
        images = _checked(batch)[0] if alone is None else _checked_images(alone)
        _require_shape(images, image_shape)
        if len(images):
            yield images


def without_labels(loader: Loader, image_shape: Sequence[int]) -> Iterator[Batch]:
    """Yield the images of ``loader``, all of them with the label UNKNOWN; an empty batch is skipped.

    Raises:
        DataError: what the loader gives is not images of ``image_shape``.
    """
    for images in image_batches(loader, image_shape):
        yield images, torch.full((len(images),), UNKNOWN)


def image_samples(
    loader: Loader, image_shape: Sequence[int], count: int, batch_size: int
) -> list[tuple[torch.Tensor, int]]:
    """The first ``count`` images of ``loader`` (fewer if it has fewer), in batches, all of them of class 0.

    Raises:
        DataError: there are fewer than two images, or the loader's batches are invalid.
    """
    found: list[torch.Tensor] = []
    missing = count
    for images in image_batches(loader, image_shape):
        found.append(images[:missing])
        missing -= len(found[-1])
        if not missing:
            break
    if count - missing < FEWEST:
        raise DataError(
            f"The loader gives {count - missing} image(s); at least {FEWEST} are needed for pruning.", "Give more."
        )
    return [(piece, 0) for piece in torch.split(torch.cat(found), batch_size)]


def class_samples(
    loader: Loader,
    wanted: WantedClasses,
    names: Sequence[str],
    image_shape: Sequence[int],
    per_class: int,
    batch_size: int,
) -> list[tuple[torch.Tensor, int]]:
    """The first ``per_class`` images of each wanted class (fewer if it has fewer), in batches of one class each.

    The loader is iterated once, no further than needed. ``names`` are those of the wanted classes.

    Raises:
        DataError: a class has fewer than two images, or the loader's batches are invalid.
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
                f"The loader gives {counted(count, 'image')} of the class {name}; scatter within a class needs "
                f"at least {FEWEST}.",
                "Let it give more of them, or leave the class out of `classes`.",
            )
        samples += [(piece, label) for piece in torch.split(torch.cat(pieces), batch_size)]
    return samples


def _iterated(loader: Loader) -> Iterator[Sequence[torch.Tensor] | torch.Tensor]:
    """An iterator over the batches of ``loader``.

    Raises:
        DataError: it cannot be iterated.
    """
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        raise DataError(f"The loader is of type {type(loader).__name__}, which cannot be iterated.", FORM)
    return iter(loader)


def _checked(batch: object) -> Batch:
    if not isinstance(batch, Sequence) or len(batch) != 2 or not all(isinstance(part, torch.Tensor) for part in batch):
        what = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, Sequence) else "")
        raise DataError(f"A batch of the loader is {what}, not a pair of tensors.", FORM)
    images, labels = batch
    images = _checked_images(images)
    if labels.shape != images.shape[:1] or labels.is_floating_point() or labels.is_complex():
        raise DataError(
            f"The labels of a batch are {labels.dtype} {tuple(labels.shape)} for {len(images)} images.", FORM
        )
    return images, _trainable(labels.long().cpu())


def _checked_images(images: torch.Tensor) -> torch.Tensor:
    if images.ndim != 4 or not images.is_floating_point():
        raise DataError(f"The images of a batch are {images.dtype} {tuple(images.shape)}.", FORM)
    return _trainable(images.float().cpu())


def _trainable(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` without its history; a copy if it was made in inference mode, since gradients cannot refer to it."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _alone(batch: object) -> torch.Tensor | None:
    """The images of a batch without labels: a tensor, or a sequence of one; None for any other batch."""
    if isinstance(batch, Sequence) and len(batch) == 1:
        (batch,) = batch
    return batch if isinstance(batch, torch.Tensor) else None


def _require_shape(images: torch.Tensor, image_shape: Sequence[int]) -> None:
    if images.shape[1:] != torch.Size(image_shape):
        raise DataError(
            f"The loader gives images of shape {tuple(images.shape[1:])} after images of {tuple(image_shape)}.",
            "Resize or crop all of them to one shape.",
        )
