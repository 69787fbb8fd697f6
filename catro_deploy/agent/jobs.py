"""The agent's jobs, one dataclass each; ``RESULT`` is the type of the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Dict, Generic, Mapping, Optional, Tuple, Type, TypeVar

from catro_deploy.agent.results import (
    BenchResult,
    BuildResult,
    CompareResult,
    DoctorResult,
    EngineSettings,
    FactsResult,
    Mode,
    ProfileResult,
    Result,
    VerifyResult,
)
from catro_deploy.agent.wire import FORMAT, Tagged, read

__all__ = [
    "BenchJob",
    "BenchProtocol",
    "BuildJob",
    "Bundle",
    "BundleResults",
    "CarriedEvent",
    "CarriedJob",
    "CompareJob",
    "DoctorJob",
    "FactsJob",
    "Job",
    "ModelFile",
    "ModelJob",
    "Order",
    "ProfileJob",
    "StartRequest",
    "Variant",
    "VerifyJob",
    "VisitProtocol",
    "Workspace",
    "read_result",
]

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Job(Tagged, Generic[R]):
    """A job with the inference runtime ``runtime``."""

    KEY: ClassVar[str] = "job"
    KINDS: ClassVar[Dict[str, Type[Any]]] = {}
    FORMAT: ClassVar[Optional[int]] = FORMAT
    RESULT: ClassVar[Type[Any]]

    runtime: str


def read_result(job: Job[R], data: Any) -> R:  # noqa: ANN401 - what JSON can hold
    """The result of ``job`` that ``data`` holds.

    Raises:
        MessageError: it holds something else.
    """
    result: R = read(job.RESULT, data, "result")
    return result


@dataclass(frozen=True)
class ModelFile:
    """An ONNX file in the job's folder, and the metadata that it must contain."""

    file: str
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class ModelJob(Job[R]):
    """A job that opens ``models``; TensorRT first builds their engines according to ``engine``."""

    threads: int
    engine: Optional[EngineSettings]
    models: Mapping[str, ModelFile]


@dataclass(frozen=True)
class BenchProtocol:
    """How long two models are timed, and the bootstrap of their ratio.

    After ``warmup_s`` they are timed in blocks of ``block`` inferences, each after ``settling`` that do not
    count. Timing ends when ``seconds`` have passed and each model has ``min_samples``, or when ``limit_s`` have passed.
    """

    warmup_s: float
    seconds: float
    min_samples: int
    limit_s: float
    block: int
    bootstrap_resamples: int
    seed: int
    settling: int = 0


@dataclass(frozen=True)
class BenchJob(ModelJob[BenchResult]):
    """Time the models ``original`` and ``pruned``, interleaved, in each of the ``modes``.

    ``complete`` also requests energy, and the times of trtexec or benchmark_app, where available. The pruned model then
    runs alone, back to back, for ``soak_s`` seconds.
    """

    NAME: ClassVar[str] = "bench"
    RESULT: ClassVar[Type[Any]] = BenchResult

    modes: Tuple[Mode, ...]
    protocol: BenchProtocol
    complete: bool = False
    soak_s: float = 0.0


@dataclass(frozen=True)
class CompareJob(Job[CompareResult]):
    """Time all ``models`` with all ``runtimes``, interleaved; the first of each gives the reference."""

    NAME: ClassVar[str] = "compare"
    RESULT: ClassVar[Type[Any]] = CompareResult

    runtimes: Tuple[str, ...]
    models: Mapping[str, ModelFile]
    threads: int
    batch: int
    protocol: BenchProtocol


@dataclass(frozen=True)
class BuildJob(ModelJob[BuildResult]):
    """Build the engine of each model, and again from scratch ``rebuilds`` times, timed with ``batch`` images."""

    NAME: ClassVar[str] = "build"
    RESULT: ClassVar[Type[Any]] = BuildResult

    batch: int
    rebuilds: int


@dataclass(frozen=True)
class VerifyJob(ModelJob[VerifyResult]):
    """Run each model on all ``images``, a .npy file of uint8 (n, channels, height, width).

    Pixels are scaled to 0..1, minus ``mean``, divided by ``std`` (one value per channel), unless the model does this.
    """

    NAME: ClassVar[str] = "verify"
    RESULT: ClassVar[Type[Any]] = VerifyResult

    images: str
    batch_size: int
    mean: Tuple[float, ...]
    std: Tuple[float, ...]


@dataclass(frozen=True)
class Variant:
    """A network to be profiled; if ``whole``, it is also timed as a whole, without profiling."""

    name: str
    file: str
    whole: bool


@dataclass(frozen=True)
class VisitProtocol:
    """Variants loaded ``together``, visited in ``rounds``; a visit takes ``block_ms`` within limits on inferences."""

    together: int
    rounds: int
    block_ms: float
    min_runs: int
    max_runs: int


@dataclass(frozen=True)
class ProfileJob(Job[ProfileResult]):
    """Time the nodes of each variant, with the file ``reference`` run between any two of them."""

    NAME: ClassVar[str] = "profile"
    RESULT: ClassVar[Type[Any]] = ProfileResult

    threads: int
    batch: int
    seed: int
    reference: str
    variants: Tuple[Variant, ...]
    protocol: VisitProtocol


@dataclass(frozen=True)
class FactsJob(Job[FactsResult]):
    """Report the device's facts, and the version of the runtime."""

    NAME: ClassVar[str] = "facts"
    RESULT: ClassVar[Type[Any]] = FactsResult


@dataclass(frozen=True)
class DoctorJob(Job[DoctorResult]):
    """Check everything that the agent may need; ``needed`` marks what the runtime requires."""

    NAME: ClassVar[str] = "doctor"
    RESULT: ClassVar[Type[Any]] = DoctorResult


@dataclass(frozen=True)
class Workspace:
    """Folders on the device: ``folder`` holds the job's files, ``home`` what the agent creates and keeps."""

    folder: str
    home: str


@dataclass(frozen=True)
class Order:
    """What the agent's process reads from its standard input."""

    job: Job[Any]
    workspace: Workspace


@dataclass(frozen=True)
class StartRequest:
    """A job for a device reached by ssh: its files (name to SHA-256), its time limit, and who requests it."""

    job: Job[Any]
    files: Mapping[str, str]
    limit_s: float
    who: str


@dataclass(frozen=True)
class CarriedJob:
    """A job in a bundle, and its files (name to SHA-256); its ``title`` is shown while it runs."""

    title: str
    job: Job[Any]
    files: Mapping[str, str]
    limit_s: float


class Carried(Tagged):
    """A file that is carried to or from a device that cannot be reached."""

    KEY: ClassVar[str] = "file"
    KINDS: ClassVar[Dict[str, Type[Any]]] = {}
    FORMAT: ClassVar[Optional[int]] = FORMAT


@dataclass(frozen=True)
class Bundle(Carried):
    """The jobs that were carried to a device, by name."""

    NAME: ClassVar[str] = "jobs"

    jobs: Mapping[str, CarriedJob]


@dataclass(frozen=True)
class BundleResults(Carried):
    """The first line of the file that is carried back, with the names of all jobs of the bundle.

    Each further line is a ``CarriedEvent``.
    """

    NAME: ClassVar[str] = "results"

    jobs: Tuple[str, ...] = ()


@dataclass(frozen=True)
class CarriedEvent:
    """An event of the job named ``job``: a part of its answer or, as the last one, its result."""

    job: str
    event: Mapping[str, Any]
