"""Measure what candidate networks use: each is written and timed interleaved with the original, like a final one."""

import tempfile
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import nn

from catro_deploy.agent.jobs import ModelFile
from catro_deploy.agent.measure import percentile
from catro_deploy.agent.results import BenchResult, Timing
from catro_deploy.budget import MEDIAN
from catro_deploy.calibration import LatencyProtocol
from catro_deploy.files import write_bytes
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.graph.onnx.footprint import Footprint, footprint_of
from catro_deploy.graph.onnx.interface import write_interface
from catro_deploy.latency.repetition import MEASUREMENTS, Repetition
from catro_deploy.precision.timing import convert_
from catro_deploy.records import Speedup
from catro_deploy.transports import run_job
from catro_deploy.transports.execution import Use, bench_job, speedup_of
from catro_deploy.transports.reach import no_power

__all__ = [
    "CandidateFiles",
    "CandidateLatency",
    "CandidateTimer",
    "Measured",
    "candidate_files",
    "candidate_timer",
    "new_repetition",
]

Proto = Any
"""An onnx.ModelProto, which has no annotations."""

GRACE_S = 600


@dataclass(frozen=True)
class CandidateLatency:
    """Latencies in microseconds, the candidate's speedup over the original, and what else the device reports.

    Attributes:
        candidate_us, original_us: medians.
        samples_us: all latencies of the candidate and of the original; empty if they were not kept.
        sustained_us: the candidate's median at the end of a soak; None if there was none.
        energy_mj: per inference, of the candidate and of the original; None if the device did not report energy.
        disturbed: whether something else on the machine probably changed the measurement, even when it was repeated.
    """

    candidate_us: float
    original_us: float
    speedup: Speedup
    warnings: tuple[str, ...]
    samples_us: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    sustained_us: float | None = None
    energy_mj: tuple[float, float] | None = None
    disturbed: bool = False

    @classmethod
    def of(cls, result: BenchResult) -> "CandidateLatency":
        """Extract what is needed from the device's ``result``."""
        energy = result.energy
        return cls(
            candidate_us=result.pruned.p50_us,
            original_us=result.original.p50_us,
            speedup=speedup_of(result),
            warnings=result.warnings,
            samples_us=(_ascending(result.pruned), _ascending(result.original)),
            sustained_us=result.soak.sustained_us if result.soak else None,
            energy_mj=(energy.pruned.mj_per_inference, energy.original.mj_per_inference) if energy else None,
        )

    def at(self, percent: int) -> tuple[float, float]:
        """This percentile of the candidate's latency and of the original's, in microseconds."""
        if percent == MEDIAN:
            return max(self.candidate_us, self.sustained_us or 0.0), self.original_us
        candidate, original = self.samples_us
        return percentile(candidate, percent), percentile(original, percent)

    def delay_us(self, percent: int) -> float:
        """The part of the candidate's latency at this percentile that smaller networks have as well, in microseconds.

        It is what the percentile exceeds the median by, less what shrinks with the median from the original to the
        candidate: interruptions by other processes do not shrink, waiting for a slow clock does.
        """
        if percent == MEDIAN:
            return 0.0
        candidate, original = self.at(percent)
        excess, of_original = candidate - self.candidate_us, original - self.original_us
        shorter = self.original_us - self.candidate_us
        per_us = (of_original - excess) / shorter if shorter > 0 else 0.0
        return max(0.0, excess - max(0.0, per_us) * self.candidate_us)


def new_repetition(percentiles: Sequence[int] = ()) -> Repetition[CandidateLatency]:
    """Repetition of measurements against an original that was not measured before.

    The original's median and these ``percentiles`` of its latency show whether a measurement was disturbed.
    """
    return Repetition(partial(_figures, (MEDIAN, *percentiles)))


def _figures(percentiles: Sequence[int], found: CandidateLatency) -> tuple[Speedup, Mapping[int, float]]:
    return found.speedup, {percent: found.at(percent)[1] for percent in percentiles}


def _ascending(timing: Timing) -> tuple[float, ...]:
    return tuple(sorted(timing.samples_us or ()))


@dataclass(frozen=True)
class Measured:
    """One candidate: the measurements of each device, and its file's footprint; None if no budget limits that."""

    devices: tuple[CandidateLatency, ...] = ()
    footprint: Footprint | None = None


@dataclass(frozen=True)
class CandidateFiles:
    """Writes candidates as they would be served, to a temporary ``folder``."""

    folder: Path
    use: Use
    opset: int
    input_shape: tuple[int, int, int]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def dynamic_batch(self) -> bool:
        """Whether the files take any number of images at a time."""
        return self.use.batch > 1

    def write(self, network: nn.Module | Proto, name: str, precision: str) -> Path:
        """Write ``network`` (a module in eval mode on the CPU, or already ONNX) in ``precision``.

        Raises:
            ModelError: it cannot be exported.
        """
        file = self.folder / f"{name}.onnx"
        if isinstance(network, nn.Module):
            opset, dynamic, metadata = self.opset, self.dynamic_batch, self.metadata
            export_onnx(network, self.input_shape, file, opset=opset, dynamic_batch=dynamic, metadata=metadata)
        else:
            write_bytes(file, network.SerializeToString())
        convert_(file, precision, self.use.own_precision, self.use.runtime, self.use.kept_in_float)
        write_interface(file, self.use.interface)
        return file

    def footprint(self, network: nn.Module) -> Footprint:
        """The footprint of the file of ``network`` in the precision that it is pruned for.

        Raises:
            ModelError: it cannot be exported.
        """
        return footprint_of(self.write(network, "pruned", self.use.precision), self.use.batch)


@dataclass(frozen=True)
class CandidateTimer:
    """Times candidates against ``original``, which is exported at the first, in the target's own precision.

    ``exported`` are files of originals by use; what it lacks is added to it.
    """

    original: nn.Module
    files: CandidateFiles
    protocol: LatencyProtocol
    with_energy: bool
    soak_s: float
    repetition: Repetition[CandidateLatency]
    exported: MutableMapping[str, bytes]

    @cached_property
    def _original_file(self) -> Path:
        use, file = self.files.use.of_original, self.files.folder / "original.onnx"
        if str(use) in self.exported:
            write_bytes(file, self.exported[str(use)])
        else:
            self.files.write(self.original, file.stem, use.precision)
            self.exported[str(use)] = file.read_bytes()
        return file

    def measure(self, candidate: nn.Module | Proto, *, repeat: bool = True) -> CandidateLatency:
        """Time ``candidate`` (a module in eval mode on the CPU, or already ONNX) interleaved with the original.

        Without a soak, ``repeat`` means to measure again if the machine was disturbed.

        Raises:
            ModelError: it cannot be exported.
            FaultError: the device's agent failed.
            TargetError: energy is requested, but the device does not report power.
        """
        file = self.files.write(candidate, "pruned", self.files.use.precision)
        found = self._timed(file) if self.soak_s else self._repeated(file, MEASUREMENTS if repeat else 1)
        if self.with_energy and found.energy_mj is None:
            raise no_power(self.files.use.target)
        return found

    def _repeated(self, file: Path, most: int) -> CandidateLatency:
        found, _ = self.repetition.repeat(lambda: self._timed(file), most)
        return replace(found, disturbed=self.repetition.doubt(found) > 1)

    def _timed(self, file: Path) -> CandidateLatency:
        use, names = self.files.use, (self._original_file.name, file.name)
        limit_s = self.protocol.limit_s + self.protocol.warmup_s + self.soak_s + GRACE_S
        models = {"original": ModelFile(names[0], {}), "pruned": ModelFile(names[1], {})}
        job = bench_job(use, self.protocol, models, complete=self.with_energy, soak_s=self.soak_s)
        return CandidateLatency.of(run_job(use.device, job, self.files.folder, names, limit_s=limit_s))


@contextmanager
def candidate_files(
    use: Use, opset: int, input_shape: tuple[int, int, int], metadata: Mapping[str, str] | None = None
) -> Iterator[CandidateFiles]:
    """A temporary folder for candidates that run as ``use`` describes, with ``metadata`` in their files."""
    with tempfile.TemporaryDirectory(prefix="catro-deploy-candidate-") as folder:
        yield CandidateFiles(Path(folder), use, opset, input_shape, metadata or {})


@contextmanager
def candidate_timer(
    original: nn.Module,
    input_shape: tuple[int, int, int],
    use: Use,
    protocol: LatencyProtocol,
    opset: int,
    *,
    with_energy: bool = False,
    soak_s: float = 0.0,
    repetition: Repetition[CandidateLatency] | None = None,
    exported: MutableMapping[str, bytes] | None = None,
) -> Iterator[CandidateTimer]:
    """Time candidates against ``original`` (eval mode, CPU), with files in a temporary folder.

    Their energy is measured as well if ``with_energy``. They also run back to back for ``soak_s`` seconds, if above 0.
    ``repetition`` knows how fast the same original was before; ``exported`` keeps its file for further timers.
    """
    exported = {} if exported is None else exported
    with candidate_files(use, opset, input_shape) as files:
        yield CandidateTimer(original, files, protocol, with_energy, soak_s, repetition or new_repetition(), exported)
