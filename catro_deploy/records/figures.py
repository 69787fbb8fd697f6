"""Parts of report.json: figures of networks, budgets, latency and groups."""

from dataclasses import dataclass
from typing import Any, Literal

from catro_deploy.records.base import Number
from catro_deploy.records.bench import Mode, Speedup
from catro_deploy.records.build import Place
from catro_deploy.records.first_look import FirstLook
from catro_deploy.records.plan import CostErrors
from catro_deploy.records.verify import OtherRuntime, Precisions, PrunedAgreement

__all__ = [
    "AgreementFigures",
    "ClassFigures",
    "Dropped",
    "EngineFigures",
    "GroupFigures",
    "Histogram",
    "ImageFigures",
    "InputFigures",
    "Interval",
    "Latency",
    "LatencyFigures",
    "LayerTime",
    "MacsShare",
    "Milliseconds",
    "ModeFigures",
    "NetworkFigures",
    "Pair",
    "RoundFigures",
    "StairFigures",
    "Verification",
    "VerifiedNetwork",
]

Interval = tuple[Number, Number]


@dataclass(frozen=True)
class InputFigures:
    """The input images of both networks; ``resized_to`` is the size to which the pruned one resizes them, if any."""

    shape: tuple[int, int, int]
    layout: Literal["NCHW"]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resized_to: tuple[int, int] | None = None


@dataclass(frozen=True)
class MacsShare:
    """Shares of the original's multiply-accumulates; ``budget`` is None if the budget is one of latency."""

    used: float
    budget: float | None


@dataclass(frozen=True)
class ImageFigures:
    """The images in words: their size, and the original's accuracy on them before pruning."""

    size: str
    original: str | None
    first_look: FirstLook | None


@dataclass(frozen=True)
class Milliseconds:
    """Percentiles of the latency in milliseconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, kw_only=True)
class Latency(Milliseconds):
    """The same, with the mean."""

    mean: float


@dataclass(frozen=True)
class NetworkFigures:
    """One network: accuracy on test images (a fraction), size, and latency; None if not measured."""

    accuracy: float | None
    accuracy_ci95: Interval | None
    macs: int
    params: int
    latency_ms: Latency | None
    latency_cv: float | None
    calls: int | None


@dataclass(frozen=True)
class ModeFigures:
    """Latencies in one mode."""

    mode: Mode
    original_ms: Milliseconds
    pruned_ms: Milliseconds
    speedup: Speedup


@dataclass(frozen=True)
class EngineFigures:
    """One TensorRT engine; ``spread`` is the slowest rebuild over the fastest.

    ``dla_parts`` is how many of the ``layers`` are parts of the network that run on a DLA; None if none was requested.
    """

    seconds: float
    engine_sha256: str
    place: Place
    settings: dict[str, Any]
    rebuilds_us: tuple[float, ...]
    layers: int
    spread: float | None
    dla_parts: int | None = None


@dataclass(frozen=True, kw_only=True)
class AgreementFigures(PrunedAgreement):
    """Agreement with the original on the test images, with its 95% interval."""

    ci95: Interval | None


@dataclass(frozen=True)
class ClassFigures:
    """Accuracies on the test images of one class, as fractions."""

    name: str
    images: int
    original: float
    pruned: float


@dataclass(frozen=True)
class GroupFigures:
    """One group of coupled channels; a ``width_after`` of 0 means that the group was removed."""

    name: str
    layers: tuple[str, ...]
    width_before: int
    width_after: int
    trace_ratio: float | None
    rounds: int | None
    fixed: str
    kept: tuple[int, ...]


@dataclass(frozen=True)
class Dropped:
    """Residual branches that were removed, and their layers."""

    branches: tuple[str, ...]
    layers: tuple[str, ...]


@dataclass(frozen=True)
class RoundFigures:
    """A round of the closed loop; ``predicted``, ``measured`` and ``ci95`` are in the budget's unit."""

    predicted: float
    measured: float
    ci95: Interval
    predicted_us: float
    measured_us: float
    original_us: float
    speedup: Speedup
    taken: bool


@dataclass(frozen=True)
class StairFigures:
    """The staircase of a group; ``chosen`` is 0 if it was removed."""

    group: str
    width: int
    chosen: int
    period: int
    candidates: tuple[int, ...]
    swept: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class LayerTime:
    """The predicted time of a layer; 0 after it was removed."""

    name: str
    before_us: float
    after_us: float


@dataclass(frozen=True)
class LatencyFigures:
    """How latency determined the widths. Staircases are sorted by their time at full width, longest first."""

    how: Literal["measured", "estimate"]
    source: str
    budget_us: float
    original_us: float
    predicted_us: float
    gap: float | None
    rounds: tuple[RoundFigures, ...]
    staircases: tuple[StairFigures, ...]
    layers: tuple[LayerTime, ...]
    errors: CostErrors | None


@dataclass(frozen=True)
class VerifiedNetwork:
    """Accuracies in PyTorch and in the runtime, and the agreement of the two."""

    torch: float | None
    runtime: float | None
    agreement: float
    largest_logit_difference: float | None


@dataclass(frozen=True)
class Verification:
    """The content of verify.json, without the classes."""

    passed: bool
    problems: tuple[str, ...]
    test_images: int
    runtime: str
    tolerance: float
    precision: Precisions
    max_drop: float | None
    original: VerifiedNetwork
    pruned: VerifiedNetwork
    onnxruntime: OtherRuntime | None


@dataclass(frozen=True)
class Pair:
    """A number of calls for each network."""

    original: int
    pruned: int


@dataclass(frozen=True)
class Histogram:
    """Counts of calls on a common axis; ``beyond`` counts the calls slower than its end."""

    low_ms: float
    high_ms: float
    original: tuple[int, ...]
    pruned: tuple[int, ...]
    beyond: Pair
