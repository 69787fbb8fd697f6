"""Measured latency of a candidate network: exported and timed interleaved with the original, like a finished one."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from catro_deploy.agent.jobs import ModelFile
from catro_deploy.calibration import LatencyProtocol
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.graph.onnx.interface import write_interface
from catro_deploy.precision.timing import convert_
from catro_deploy.records import Speedup
from catro_deploy.transports import run_job
from catro_deploy.transports.execution import Use, bench_job, speedup_of

__all__ = ["CandidateLatency", "CandidateTimer", "candidate_timer"]


@dataclass(frozen=True)
class CandidateLatency:
    """Medians in microseconds, and the candidate's speedup over the original."""

    candidate_us: float
    original_us: float
    speedup: Speedup
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class CandidateTimer:
    """An exported original, in the target's own precision, that candidates are timed against."""

    folder: Path
    use: Use
    protocol: LatencyProtocol
    opset: int
    input_shape: tuple[int, int, int]

    def measure(self, candidate: nn.Module) -> CandidateLatency:
        """Time ``candidate`` (eval mode, CPU) interleaved with the original.

        Raises:
            ModelError: it cannot be exported.
            FaultError: the device's agent failed.
        """
        file = self._export(candidate, "pruned", self.use.precision)
        names, limit_s = ("original.onnx", file.name), self.protocol.limit_s + self.protocol.warmup_s + 600
        models = {"original": ModelFile(names[0], {}), "pruned": ModelFile(names[1], {})}
        job = bench_job(self.use, self.protocol, models)
        result = run_job(self.use.device, job, self.folder, names, limit_s=limit_s)
        return CandidateLatency(
            candidate_us=result.pruned.p50_us,
            original_us=result.original.p50_us,
            speedup=speedup_of(result),
            warnings=result.warnings,
        )

    def _export(self, network: nn.Module, name: str, precision: str) -> Path:
        file = self.folder / f"{name}.onnx"
        dynamic = self.use.batch > 1
        export_onnx(network, self.input_shape, file, opset=self.opset, dynamic_batch=dynamic, metadata={})
        convert_(file, precision, self.use.own_precision, self.use.runtime)
        write_interface(file, self.use.interface)
        return file


@contextmanager
def candidate_timer(
    original: nn.Module, input_shape: tuple[int, int, int], use: Use, protocol: LatencyProtocol, opset: int
) -> Iterator[CandidateTimer]:
    """Export ``original`` (eval mode, CPU) to a temporary folder and time candidates against it."""
    with tempfile.TemporaryDirectory(prefix="catro-deploy-candidate-") as folder:
        made = CandidateTimer(Path(folder), use, protocol, opset, input_shape)
        made._export(original, "original", use.own_precision)
        yield made
