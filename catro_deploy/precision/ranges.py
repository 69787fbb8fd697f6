"""The range of every value in a network on calibration images, to be covered by its integers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import NumericsError
from catro_deploy.precision.graph import Observer, pieces
from catro_deploy.precision.thresholds import BINS, Histogram, Method, range_by

__all__ = ["Range", "find_ranges"]

Floats = NDArray[np.float32]

# Maximum number of values per tensor that go into its histogram, evenly from all inferences: 2048 for each bin.
MOST_VALUES = BINS << 11


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``, including 0; ``clipped`` is the share of observed values outside."""

    low: float
    high: float
    clipped: float = 0.0


def find_ranges(proto: Any, images: Floats, method: Method, percentile: float = 100.0) -> dict[str, Range]:  # noqa: ANN401
    """The range of each float value of ``proto`` (an onnx.ModelProto) on normalised ``images`` (n, c, h, w).

    Takes one pass over the images, and a second one for histograms with any method but ``min-max``. Needs the memory of
    one inference; equal images in equal order give equal ranges.

    Raises:
        NumericsError: a value is not finite.
    """
    observer, parts = Observer(proto), pieces(proto, images)
    extremes: dict[str, tuple[float, float]] = {}
    for name, values in _floats(observer, parts):
        low, high = float(values.min()), float(values.max())
        if not np.isfinite([low, high]).all():
            raise NumericsError(
                f"{name} is not finite on calibration images, so its integers have no range.",
                "If the weights are the cause: check finetune.json, and lower finetune.learning_rate.",
            )
        before = extremes.get(name, (0.0, 0.0))
        extremes[name] = min(low, before[0]), max(high, before[1])
    if method == "min-max":
        return {name: Range(*ends) for name, ends in extremes.items()}
    found = {}
    for name, histogram in _histograms(observer, parts, extremes).items():
        chosen = range_by(method, histogram, percentile)
        found[name] = Range(*chosen, clipped=histogram.outside(*chosen))
    return found


def _histograms(
    observer: Observer, parts: Sequence[Floats], extremes: Mapping[str, tuple[float, float]]
) -> dict[str, Histogram]:
    counts = {name: np.zeros(BINS) for name in extremes}
    most = max(1, MOST_VALUES // len(parts))
    for at, part in enumerate(parts):
        for name, values in _floats(observer, [part]):
            step = -(-values.size // most)
            # Each inference starts elsewhere: the same places of all feature maps would not be a fair sample.
            counts[name] += _counts(values.ravel()[at % step :: step], *extremes[name])
    return {name: Histogram(*ends, counts[name]) for name, ends in extremes.items()}


def _counts(values: Floats, low: float, high: float) -> NDArray[np.int64]:
    """The number of values in each of BINS equal bins; np.histogram takes several times as long for few values."""
    bins = (values.astype(np.float64) - low) * (BINS / (high - low or 1.0))
    return np.bincount(np.minimum(bins.astype(np.int64), BINS - 1), minlength=BINS)


def _floats(observer: Observer, parts: Iterable[Floats]) -> Iterator[tuple[str, Floats]]:
    for values in map(observer.values, parts):
        yield from ((name, value) for name, value in values.items() if value.dtype == np.float32 and value.size)
