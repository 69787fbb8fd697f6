"""Images in files: decoded on access, resized and converted, kept in memory if they fit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import Part, Split
from catro_deploy.data.decoding import Framing, decode, in_threads
from catro_deploy.data.form import ImageForm
from catro_deploy.data.listing import taken
from catro_deploy.data.sources import ImageSource

if TYPE_CHECKING:
    import torch

__all__ = ["REMEMBERED_BYTES", "FileSplit", "LabelledFiles", "as_files", "file_splits"]

REMEMBERED_BYTES = 2 * 1024**3
"""A dataset that decodes to at most this size is kept in memory; a larger one is decoded again at each access."""

LabelledFiles = tuple[Sequence[ImageSource], NDArray[np.int64]]
"""Image files and their class indices, shape (n,)."""


class FileSplit:
    """Labelled image files. ``images`` may be called from several threads at a time.

    ``workers`` processes decode them for training and evaluation, unless they are ``remembered``; None: one per core.
    """

    def __init__(
        self,
        paths: Sequence[ImageSource],
        labels: NDArray[np.int64],
        form: ImageForm,
        *,
        remember: bool,
        workers: int | None = None,
    ) -> None:
        self.paths, self.labels, self.form = paths, labels, form
        self.remembered, self.workers = remember, workers
        self._forget()

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> "torch.Tensor":
        """The images at ``indices``: uint8, shape (n, channels, height, width).

        Raises:
            DataError: a file is missing or is not a complete image; the message names it.
        """
        import torch

        wanted = np.asarray(indices, dtype=np.int64)
        if self._memory is None:
            return torch.from_numpy(self._decode(wanted))
        missing = np.unique(wanted[~self._decoded[wanted]])
        if len(missing):
            self._memory[missing] = self._decode(missing)
            self._decoded[missing] = True
        return torch.from_numpy(self._memory[wanted])

    def framed(self, indices: NDArray[np.int64], framings: Sequence[Framing]) -> "torch.Tensor":
        """The images at ``indices``, each with its framing, at the form's size: uint8, decoded from their files.

        Raises:
            DataError: see ``images``.
        """
        import torch

        return torch.from_numpy(self._decode(indices, framings))

    def at(self, indices: NDArray[np.int64], labels: NDArray[np.int64]) -> "FileSplit":
        """A split of the files at ``indices``, with other ``labels``."""
        return FileSplit(taken(self.paths, indices), labels, self.form, remember=self.remembered, workers=self.workers)

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, without the pixels: that process decodes them itself."""
        return {key: value for key, value in vars(self).items() if key not in ("_memory", "_decoded")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def _forget(self) -> None:
        # Pages of the array are allocated when they are written, so images that are never read take no memory.
        self._memory = np.empty(self._shape(len(self.paths)), np.uint8) if self.remembered else None
        self._decoded = np.zeros(len(self.paths), dtype=bool)

    def _shape(self, images: int) -> tuple[int, int, int, int]:
        return images, self.form.channels, *self.form.size

    def _decode(self, indices: NDArray[np.int64], framings: Sequence[Framing] | None = None) -> NDArray[np.uint8]:
        pixels = np.empty(self._shape(len(indices)), np.uint8)

        def one(place: int) -> None:
            pixels[place] = decode(self.paths[indices[place]], framings[place] if framings else self.form)

        for _ in in_threads(one, range(len(indices))):
            pass
        return pixels


def file_splits(parts: Sequence[LabelledFiles], form: ImageForm, workers: int | None = None) -> tuple[FileSplit, ...]:
    """A FileSplit for each (paths, labels), remembered if all of them together fit into REMEMBERED_BYTES."""
    total_bytes = sum(len(paths) for paths, _ in parts) * form.channels * form.size[0] * form.size[1]
    remember = total_bytes <= REMEMBERED_BYTES
    return tuple(FileSplit(paths, labels, form, remember=remember, workers=workers) for paths, labels in parts)


def as_files(split: Split) -> FileSplit | None:
    """``split`` as a FileSplit of its image files; None if its images are not in files."""
    if isinstance(split, FileSplit):
        return split
    if isinstance(split, Part) and (files := as_files(split.whole)) is not None:
        return files.at(split.indices, split.labels)
    return None
