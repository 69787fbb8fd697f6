"""The range of every value in a network on calibration images, to be covered by its integers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import NumericsError
from catro_deploy.precision.graph import Observer, pieces
from catro_deploy.precision.thresholds import BINS, Histogram, Method, range_by

__all__ = ["Range", "find_ranges"]

Floats = NDArray[np.float32]

# Maximum number of evenly spaced values per tensor and inference that go into the histogram.
MOST_VALUES = 1 << 16


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
    counts = {name: np.zeros(BINS) for name in extremes}
    for name, values in _floats(observer, parts):
        flat = values.ravel()
        some = flat[:: -(-flat.size // MOST_VALUES)]
        counts[name] += np.histogram(some, BINS, _wide(*extremes[name]))[0]
    found = {}
    for name, (low, high) in extremes.items():
        histogram = Histogram(low, high, counts[name])
        chosen = range_by(method, histogram, percentile)
        found[name] = Range(*chosen, clipped=histogram.outside(*chosen))
    return found


def _wide(low: float, high: float) -> tuple[float, float]:
    return (low, high) if low < high else (low, low + 1)


def _floats(observer: Observer, parts: Sequence[Floats]) -> Iterator[tuple[str, NDArray[Any]]]:
    every: Iterable[dict[str, NDArray[Any]]] = map(observer.values, parts)
    for values in every:
        yield from ((name, value) for name, value in values.items() if value.dtype == np.float32 and value.size)
