"""Between-class and within-class scatter of each channel, in one pass over samples that come class by class.

For channel i of a layer with N samples of K classes, positions being part of the feature vector::

    between[i] = sum_k n_k * ||mu_k,i - mu_i||^2
    within[i]  = sum_k sum_{n in k} ||o_n,i - mu_k,i||^2

These are the diagonals of O(Lambda_b - G_b)O^T and O(Lambda_w - G_w)O^T of the CATRO paper (arXiv 2110.10921) with its
Fisher weights. Means of a class are merged as in Chan, Golub and LeVeque (1979), those of the classes are summed about
the first one's, so memory holds three means whatever N and K are, and nothing is ever the small difference of two large
numbers.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from catro_deploy.errors import DataError, NumericsError

__all__ = ["Scatter", "ScatterMeter"]

CACHED_BYTES = 2**19
CLASSES_IN_FLOAT32 = 16


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
        """The same divided by ``mean_total``, so that layers of different scale can be added; zeros stay zeros."""
        scale = self.mean_total or 1.0
        return Scatter(self.between / scale, self.within / scale)


class _Moments:
    """Count, mean and summed squared deviation of vectors, mergeable in float64 on the data's device."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: torch.Tensor | None = None
        self.deviation: torch.Tensor | None = None

    def merge(self, count: int, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        if self.mean is None or self.deviation is None:
            self.count, self.mean, self.deviation = count, mean, deviation
            return
        total = self.count + count
        self.mean = self.mean.double()
        offset = mean - self.mean
        self.deviation = self.deviation + deviation + _row_norms(offset) * (self.count * count / total)
        self.mean = self.mean + offset * (count / total)
        self.count = total


class _ClassMeans:
    """Summed squared deviation of class means from their weighted mean, one reading of each.

    Both sums are about the first class's mean, from which the others are about as far as from their own mean: what is
    subtracted in the end is no larger than what matters. A few classes at a time are added up in float32, which moves
    half as much memory as float64 does.
    """

    def __init__(self) -> None:
        self._count = 0
        self._origin: torch.Tensor | None = None
        self._recent = self._sum = self._squares = torch.empty(0)
        self._recent_classes = 0

    def add(self, count: int, mean: torch.Tensor) -> None:
        self._count += count
        mean = mean.float()
        if self._origin is None:
            self._origin, self._recent = mean, torch.zeros_like(mean)
            self._sum = torch.zeros_like(mean, dtype=torch.float64)
            self._squares = self._sum.new_zeros(len(mean))
            return
        norms = mean.new_empty(len(mean))
        step = max(1, CACHED_BYTES // max(1, mean[0].nbytes))
        buffer = torch.empty_like(mean[:step])
        for first in range(0, len(mean), step):
            rows = slice(first, first + step)
            offset = torch.sub(mean[rows], self._origin[rows], out=buffer[: len(mean) - first])
            self._recent[rows].add_(offset, alpha=count)
            torch.linalg.vector_norm(offset, dim=1, out=norms[rows])
        self._squares.add_(norms.double().square_(), alpha=count)
        self._recent_classes += 1
        if self._recent_classes == CLASSES_IN_FLOAT32:
            self._flush()

    def deviation(self) -> torch.Tensor | None:
        if self._origin is None:
            return None
        self._flush()
        return (self._squares - _row_norms(self._sum) / self._count).clamp_(min=0)

    def _flush(self) -> None:
        self._sum += self._recent
        self._recent.zero_()
        self._recent_classes = 0


class ScatterMeter:
    """Gathers the scatter of one layer. Feed batches with ``add``; all samples of a class before the next class."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._class = _Moments()
        self._classes = _ClassMeans()
        self._within: torch.Tensor | None = None
        self._seen: list[int] = []

    def add(self, features: torch.Tensor, label: int) -> None:
        """Add feature maps of shape (n, channels, *positions), all of class ``label``.

        Raises:
            NumericsError: NaN or infinity among them.
            ValueError: samples of a class came after another class had begun.
        """
        if not self._seen or label != self._seen[-1]:
            if label in self._seen:
                raise ValueError(f"samples of class {label} must come in one piece")
            self._close_class()
            self._seen.append(label)
        flat = features.flatten(2) if features.ndim > 2 else features.unsqueeze(2)
        mean, deviation = _moments(flat)
        if not bool(torch.isfinite(deviation).all()):
            raise NumericsError(
                f"The feature maps of {self._name} hold NaN or infinity (class {label}).",
                "Check the checkpoint and the normalisation ([model] mean, std); prune nothing until they are finite.",
            )
        self._class.merge(len(flat), mean, deviation)

    def scatter(self) -> Scatter:
        """The scatter of all that was added.

        Raises:
            DataError: fewer than two classes were added.
        """
        with torch.inference_mode():  # as the feature maps may have been made, so that sums can be changed in place
            self._close_class()
            between = self._classes.deviation()
        if len(self._seen) < 2 or self._within is None or between is None:
            raise DataError("Scatter needs samples of at least two classes.", "Choose more classes with --classes.")
        return Scatter(between.cpu().numpy(), self._within.cpu().numpy())

    def _close_class(self) -> None:
        done, self._class = self._class, _Moments()
        if done.mean is None or done.deviation is None:
            return
        self._within = done.deviation if self._within is None else self._within + done.deviation
        self._classes.add(done.count, done.mean)


def _moments(samples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean (channels, positions) of samples (n, channels, positions), and squared deviation from it by channel.

    Deviations are taken about the batch's own mean, so that float32 is enough for each sample's norm.
    """
    count, channels, positions = samples.shape
    # Some channels at a time, which stay in the cache from the mean to the norms: large maps are read once.
    step = max(1, CACHED_BYTES // max(1, count * positions * samples.element_size()))
    mean, norms = samples.new_empty(channels, positions), samples.new_empty(count, channels)
    ones = samples.new_ones(1, count)
    buffer = samples.new_empty(count, min(step, channels), positions)
    for first in range(0, channels, step):
        part = samples[:, first : first + step]
        about = mean[first : first + step]
        # A product with ones is several times faster on a CPU than mean(0).
        torch.matmul(ones, part.flatten(1), out=about.view(1, -1))
        about.div_(count)
        offset = torch.sub(part, about, out=buffer[:, : len(about)])
        norms[:, first : first + step] = torch.linalg.vector_norm(offset, dim=2)
    return mean, norms.double().square_().sum(0)


def _row_norms(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().sum(1)
