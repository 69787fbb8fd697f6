"""bench.json: latencies of the original and the pruned network, measured interleaved on the target."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import MinLen

from catro_deploy.records.base import Count, NonNegative, Positive, PositiveCount, Record

__all__ = [
    "Bench", "BenchmarkApp", "Energy", "EnergyUse", "Mode", "ModeTimes", "Protocol", "Samples", "Soak", "SoakWindow",
    "Speedup", "Times", "Trtexec",
]  # fmt: skip


@dataclass(frozen=True)
class Times:
    """Percentiles and mean of the latency of ``n`` calls, in microseconds, and its coefficient of variation.

    ``enqueue_p50_us`` is the median time that the host takes to enqueue one call; None on a CPU.
    """

    p50_us: Positive
    p90_us: Positive
    p99_us: Positive
    mean_us: Positive
    cv: NonNegative
    n: PositiveCount
    enqueue_p50_us: NonNegative | None = None


@dataclass(frozen=True, kw_only=True)
class Samples(Times):
    """The same, with the latency of every call in chronological order."""

    samples_us: Annotated[tuple[Positive, ...], MinLen(1)]


@dataclass(frozen=True)
class Speedup:
    """The original's median latency over the pruned network's, with its 95% interval; above 1: pruned is faster."""

    median: Positive
    ci95: tuple[Positive, Positive]

    @property
    def ratio(self) -> float:
        """The pruned network's latency as a share of the original's."""
        return 1 / self.median

    @property
    def ratio_ci95(self) -> tuple[float, float]:
        """The 95% interval of ``ratio``."""
        low, high = self.ci95
        return 1 / high, 1 / low


@dataclass(frozen=True)
class Mode:
    """Images per call and, on a GPU, whether transfers are included and whether the call is one CUDA graph."""

    batch: PositiveCount
    transfers: bool | None = None
    cuda_graph: bool | None = None


@dataclass(frozen=True)
class ModeTimes:
    """Latencies in an additional mode."""

    original: Times
    pruned: Times
    speedup: Speedup
    mode: Mode
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Trtexec:
    """Latencies measured by NVIDIA's trtexec, one engine at a time."""

    version: str
    mode: Mode
    original: Times
    pruned: Times


@dataclass(frozen=True)
class BenchmarkApp:
    """Median latencies measured by OpenVINO's benchmark_app, one network at a time."""

    version: str
    mode: Mode
    original_us: Positive
    pruned_us: Positive


@dataclass(frozen=True)
class EnergyUse:
    """Mean power, energy per inference, and its spread over repetitions, as a share."""

    watts: NonNegative
    mj_per_inference: NonNegative
    spread: NonNegative | None


@dataclass(frozen=True)
class Energy:
    """Energy of both networks from the power ``rails``; ``idle_w`` is None if the meter reported nothing when idle."""

    rails: str
    idle_w: NonNegative | None
    original: EnergyUse
    pruned: EnergyUse


@dataclass(frozen=True)
class SoakWindow:
    """Latencies of the ``n`` inferences in the window that starts ``starts_s`` seconds after the start of the soak."""

    starts_s: NonNegative
    n: PositiveCount
    p50_us: Positive
    p99_us: Positive


@dataclass(frozen=True)
class Soak:
    """The pruned network run back to back for ``seconds``, in windows; sustained latencies are of the last quarter."""

    seconds: Positive
    sustained_us: Positive
    sustained_p99_us: Positive
    windows: Annotated[tuple[SoakWindow, ...], MinLen(1)]


@dataclass(frozen=True)
class Protocol:
    """The measurement protocol: its ``name`` and parameters; see ``calibration/latency``."""

    name: str
    warmup_s: NonNegative
    seconds: Positive
    min_samples: PositiveCount
    limit_s: Positive
    block: PositiveCount
    bootstrap_resamples: PositiveCount
    seed: Count
    settling: Count = 0


@dataclass(frozen=True)
class Bench(Record):
    """Latencies in the first mode, and in ``further`` ones.

    ``environment`` describes where it was measured; its keys depend on the device. ``also`` holds the same for further
    targets that the network is made for, keyed by the names that the user gave them.
    """

    original: Samples
    pruned: Samples
    speedup: Speedup
    mode: Mode
    further: tuple[ModeTimes, ...]
    protocol: Protocol
    environment: dict[str, Any]
    warnings: tuple[str, ...]
    trtexec: Trtexec | None = None
    benchmark_app: BenchmarkApp | None = None
    energy: Energy | None = None
    soak: Soak | None = None
    also: "dict[str, Bench]" = field(default_factory=dict)

    def on(self, name: str, first: str) -> "Bench | None":
        """The measurements on the target ``name``, or None; ``first`` is the name of this record's own target."""
        return self if name in ("", first) else self.also.get(name)
