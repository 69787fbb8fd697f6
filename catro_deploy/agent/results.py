"""The results of jobs, one dataclass each. Units are in names; what a device does not report is None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Dict, Mapping, Optional, Tuple, Type

from catro_deploy.agent.device import DeviceFacts, DeviceState, MeasuredClocks, flat
from catro_deploy.agent.wire import FORMAT, Tagged

__all__ = [
    "BenchFacts",
    "BenchResult",
    "BenchmarkAppTiming",
    "BuildResult",
    "BuiltEngine",
    "CompareResult",
    "ComparedTiming",
    "DoctorResult",
    "Energy",
    "EngineSettings",
    "FactsResult",
    "Finding",
    "Mode",
    "ModeResult",
    "ModelEnergy",
    "ProfileResult",
    "Result",
    "Soak",
    "SoakWindow",
    "Speedup",
    "Timing",
    "TrtexecTiming",
    "VerifyResult",
    "facts_record",
]


@dataclass(frozen=True)
class Result(Tagged):
    """The answer to a job; ``NAME`` is the job's."""

    KEY: ClassVar[str] = "result"
    KINDS: ClassVar[Dict[str, Type[Any]]] = {}
    FORMAT: ClassVar[Optional[int]] = FORMAT


@dataclass(frozen=True)
class BenchFacts:
    """The device, and its state before, ``during`` and after a measurement.

    ``other_load_cores`` is the number of cores that other processes used; ``properties`` are the runtime's own
    description of how it computed.
    """

    device: DeviceFacts
    runtime: str
    providers: Tuple[str, ...]
    before: DeviceState
    after: DeviceState
    other_load_cores: Optional[float]
    during: Optional[MeasuredClocks] = None
    properties: Optional[Mapping[str, str]] = None


@dataclass(frozen=True)
class Timing:
    """Latency of one model: percentiles, mean, coefficient of variation, and samples in chronological order.

    ``enqueue_p50_us`` is the median time that the host takes to enqueue an inference on a GPU.
    """

    p50_us: float
    p90_us: float
    p99_us: float
    mean_us: float
    cv: float
    n: int
    samples_us: Optional[Tuple[float, ...]] = None
    enqueue_p50_us: Optional[float] = None


@dataclass(frozen=True)
class Speedup:
    """The original's median over the pruned's, with its 95% interval."""

    median: float
    ci95: Tuple[float, float]


@dataclass(frozen=True)
class Mode:
    """How inferences are timed: the batch; on a GPU, whether transfers count, and whether a CUDA graph is used."""

    batch: int
    transfers: Optional[bool] = None
    cuda_graph: Optional[bool] = None


@dataclass(frozen=True)
class ModeResult:
    """Latencies in one mode, and remarks on them."""

    original: Timing
    pruned: Timing
    speedup: Speedup
    mode: Mode
    warnings: Tuple[str, ...]


@dataclass(frozen=True)
class ModelEnergy:
    """Watts, and millijoules per inference; ``spread`` is the relative spread of the turns."""

    watts: float
    mj_per_inference: float
    spread: Optional[float]


@dataclass(frozen=True)
class Energy:
    """Energy per inference, and the power that the ``rails`` draw when the device idles."""

    rails: str
    idle_w: Optional[float]
    original: ModelEnergy
    pruned: ModelEnergy


@dataclass(frozen=True)
class SoakWindow:
    """Latencies of ``n`` inferences, in a window that begins ``starts_s`` after the start of the soak."""

    starts_s: float
    n: int
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class Soak:
    """The pruned network, run back to back for ``seconds``, in windows; the sustained times are of the last quarter."""

    seconds: float
    sustained_us: float
    sustained_p99_us: float
    windows: Tuple[SoakWindow, ...]


@dataclass(frozen=True)
class TrtexecTiming:
    """The same engines timed by NVIDIA's trtexec."""

    mode: Mode
    version: str
    original: Timing
    pruned: Timing


@dataclass(frozen=True)
class BenchmarkAppTiming:
    """The medians of the same networks by OpenVINO's benchmark_app."""

    mode: Mode
    version: str
    original_us: float
    pruned_us: float


@dataclass(frozen=True)
class BenchResult(ModeResult, Result):
    """Latencies in the first mode; ``further`` holds those in the other modes, without samples."""

    NAME: ClassVar[str] = "bench"

    facts: BenchFacts
    further: Tuple[ModeResult, ...]
    energy: Optional[Energy] = None
    trtexec: Optional[TrtexecTiming] = None
    benchmark_app: Optional[BenchmarkAppTiming] = None
    soak: Optional[Soak] = None


@dataclass(frozen=True)
class ComparedTiming:
    """Latency of one network with one runtime, and its speedup over the reference."""

    runtime: str
    network: str
    timing: Timing
    speedup: Speedup


@dataclass(frozen=True)
class CompareResult(Result):
    """Latencies with every runtime that is installed, ``versions`` of these, and why others are ``missing``."""

    NAME: ClassVar[str] = "compare"

    device: DeviceFacts
    versions: Mapping[str, str]
    missing: Mapping[str, str]
    timings: Tuple[ComparedTiming, ...]
    warnings: Tuple[str, ...]


@dataclass(frozen=True)
class EngineSettings:
    """How TensorRT builds an engine.

    ``level`` is the optimisation level (0 to 5); ``workspace_mib`` limits the workspace (None: what the GPU has, or a
    fraction of memory that it shares with the processor); ``dla`` is a core of the deep learning accelerator (None: the
    GPU); ``batches`` has the usual one first, each with its own optimization profile; ONNX Runtime has one profile,
    from 1 to the largest.
    """

    level: int
    workspace_mib: Optional[int]
    dla: Optional[int]
    batches: Tuple[int, ...]


@dataclass(frozen=True)
class BuiltEngine:
    """An engine: which file it was built from, where and how; ``layers`` as TensorRT's inspector lists them.

    ``rebuilds_us`` are the medians of engines that were built again from scratch.
    """

    onnx_sha256: str
    engine_sha256: str
    place: Mapping[str, Any]
    settings: EngineSettings
    metadata: Mapping[str, str]
    seconds: float
    layers: Any
    rebuilds_us: Tuple[float, ...]


@dataclass(frozen=True)
class BuildResult(Result):
    """The engine of each model."""

    NAME: ClassVar[str] = "build"

    engines: Mapping[str, BuiltEngine]


@dataclass(frozen=True)
class VerifyResult(Result):
    """The runtime that computed the logits, which were emitted as events."""

    NAME: ClassVar[str] = "verify"

    runtime: str


@dataclass(frozen=True)
class ProfileResult(Result):
    """The runtime that timed the samples, which were emitted as events."""

    NAME: ClassVar[str] = "profile"

    runtime: str
    providers: Tuple[str, ...]


@dataclass(frozen=True)
class FactsResult(Result):
    """What the device is, the runtime's name and version, and whether the power that networks draw is reported."""

    NAME: ClassVar[str] = "facts"

    device: DeviceFacts
    runtime: str
    reports_power: bool = False


def facts_record(found: FactsResult) -> Dict[str, Any]:
    """The device and its runtime as one JSON object."""
    return {**flat(found.device), "runtime": found.runtime}


@dataclass(frozen=True)
class Finding:
    """One check: its ``state`` is works, missing or broken; ``remedy`` is what to do.

    Jobs cannot run without what is ``needed``.
    """

    name: str
    state: str
    detail: str
    needed: bool
    remedy: str = ""


@dataclass(frozen=True)
class DoctorResult(Result):
    """The doctor's findings on the device."""

    NAME: ClassVar[str] = "doctor"

    findings: Tuple[Finding, ...]
