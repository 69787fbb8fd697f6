"""Between-class and within-class scatter of each channel, in one pass over samples that come class by class.

For channel i of a layer with N samples of K classes, positions being part of the feature vector::

    between[i] = sum_k n_k * ||mu_k,i - mu_i||^2
    within[i]  = sum_k sum_{n in k} ||o_n,i - mu_k,i||^2

These are the diagonals of O(Lambda_b - G_b)O^T and O(Lambda_w - G_w)O^T of the CATRO paper (arXiv 2110.10921) with its
Fisher weights. Batches of a class, and then classes, are merged as in Chan, Golub and LeVeque (1979): memory holds two
means whatever N and K are, and nothing is computed as the small difference of two large numbers. Scatter that rounding
of the means could produce from equal numbers counts as zero.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from catro_deploy.errors import DataError, NumericsError

__all__ = ["Scatter", "ScatterMeter"]

CACHED_BYTES = 2**19
ROUNDING = 2.0**-24
"""Largest relative rounding error of an addition in float32."""
MERGES = 64
"""Means count as sums of at least this many numbers, since merging them rounds, too."""


@dataclass(frozen=True)
class Scatter:
    """Scatter of each channel: two float64 arrays of shape (channels,)."""

    between: NDArray[np.float64]
    within: NDArray[np.float64]

    @property
    def mean_total(self) -> float:
        """Mean over the channels of between + within: the scale of this layer's activations."""
        return float(np.mean(self.between + self.within))

    def normalised(self) -> "Scatter":
        """The scatter divided by ``mean_total``, so that layers of different scale can be added; zeros stay zeros."""
        scale = self.mean_total or 1.0
        return Scatter(self.between / scale, self.within / scale)


class _Moments:
    """Count, mean (channels, positions) and each channel's summed squared deviation, float64, of some feature maps."""

    def __init__(self, count: int, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        self.count, self.mean, self.deviation = count, mean, deviation

    def merge(self, other: "_Moments") -> None:
        """Add the moments of ``other``, some channels at a time, so that each mean is read from memory once."""
        total = self.count + other.count
        norms = self.mean.new_empty(len(self.mean))
        step = max(1, CACHED_BYTES // max(1, self.mean[0].nbytes))
        buffer = torch.empty_like(self.mean[:step])
        for first in range(0, len(norms), step):
            about = self.mean[first : first + step]
            offset = torch.sub(other.mean[first : first + step], about, out=buffer[: len(about)])
            about.add_(offset, alpha=other.count / total)
            torch.linalg.vector_norm(offset, dim=1, out=norms[first : first + step])
        between = norms.double().square_().mul_(self.count * other.count / total)
        self.deviation = self.deviation + other.deviation + between
        self.count = total


class ScatterMeter:
    """Gathers the scatter of one layer. Feed batches with ``add``; all samples of a class before the next class."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._class: _Moments | None = None
        self._classes: _Moments | None = None
        self._within: torch.Tensor | None = None
        self._seen: list[int] = []
        self._most_added = MERGES

    def add(self, features: torch.Tensor, label: int) -> None:
        """Add feature maps of shape (n, channels, *positions), all of class ``label``.

        Raises:
            NumericsError: they contain NaN or infinity.
            ValueError: samples of a class came after another class had begun.
        """
        if not self._seen or label != self._seen[-1]:
            if label in self._seen:
                raise ValueError(f"samples of class {label} must be contiguous")
            self._close_class()
            self._seen.append(label)
        flat = features.flatten(2) if features.ndim > 2 else features.unsqueeze(2)
        self._most_added = max(self._most_added, len(flat))
        batch = _moments(flat.float())
        if not bool(torch.isfinite(batch.deviation).all()):
            raise NumericsError(
                f"The feature maps of {self._name} hold NaN or infinity (class {label}).",
                "Check the checkpoint and the normalisation ([model] mean, std); prune nothing until they are finite.",
            )
        if self._class is None:
            self._class = batch
        else:
            self._class.merge(batch)

    def scatter(self) -> Scatter:
        """The scatter of all samples that were added.

        Raises:
            DataError: fewer than two classes were added.
        """
        with torch.inference_mode():  # sums may be inference tensors, which can be changed in place here only
            self._close_class()
        if len(self._seen) < 2 or self._classes is None or self._within is None:
            raise DataError("Scatter needs samples of at least two classes.", "Choose more classes with --classes.")
        every = self._classes
        # Some processors add up the samples of a batch one by one, and each sum is rounded.
        known_to = ROUNDING * self._most_added
        rounding = every.count * (known_to * torch.linalg.vector_norm(every.mean, dim=1).double()).square()
        between, within = (part.where(part > rounding, 0).cpu().numpy() for part in (every.deviation, self._within))
        return Scatter(between, within)

    def _close_class(self) -> None:
        if self._class is None:
            return
        done, self._class = self._class, None
        self._within = done.deviation if self._within is None else self._within + done.deviation
        done.deviation = torch.zeros_like(done.deviation)
        if self._classes is None:
            self._classes = done
        else:
            self._classes.merge(done)


def _moments(samples: torch.Tensor) -> _Moments:
    """The moments of each channel of ``samples`` (n, channels, positions).

    Float32 is enough for each sample's norm, since it is taken about the batch's own mean.
    """
    count, channels, positions = samples.shape
    # Some channels at a time, which stay in the cache from the mean to the norms: large maps are read once.
    step = max(1, CACHED_BYTES // max(1, count * positions * samples.element_size()))
    mean, norms = samples.new_empty(channels, positions), samples.new_empty(count, channels)
    # A product with these is several times faster on a CPU than mean(0).
    shares = samples.new_full((1, count), 1 / count)
    buffer = samples.new_empty(count, min(step, channels), positions)
    for first in range(0, channels, step):
        part = samples[:, first : first + step]
        about = mean[first : first + step]
        torch.matmul(shares, part.flatten(1), out=about.view(1, -1))
        offset = torch.sub(part, about, out=buffer[:, : len(about)])
        norms[:, first : first + step] = torch.linalg.vector_norm(offset, dim=2)
    return _Moments(count, mean, norms.double().square_().sum(0))
