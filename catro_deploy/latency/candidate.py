"""What a candidate network really takes: exported and timed in turns with the original, like a finished one."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from catro_deploy.calibration import LatencyProtocol
from catro_deploy.errors import FaultError
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.precision.timing import convert_
from catro_deploy.transports import run_job
from catro_deploy.transports.execution import Use

__all__ = ["Trial", "TrialResult", "trial"]


@dataclass(frozen=True)
class TrialResult:
    """Medians in microseconds; ``ratio`` is the candidate's over the original's, with its 95% interval."""

    candidate_us: float
    original_us: float
    ratio: float
    ratio_ci95: tuple[float, float]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """An exported original, in the target's own precision, that candidates are timed against."""

    folder: Path
    use: Use
    protocol: LatencyProtocol
    opset: int
    input_shape: tuple[int, int, int]

    def measure(self, candidate: nn.Module) -> TrialResult:
        """Time ``candidate`` (eval mode, CPU) in turns with the original.

        Raises:
            ModelError: it cannot be exported.
            FaultError: the device's agent failed.
        """
        file = self._export(candidate, "pruned", self.use.precision)
        names, limit_s = ("original.onnx", file.name), self.protocol.limit_s + self.protocol.warmup_s + 600
        for event in run_job(self.use.device, self._job(file), self.folder, names, limit_s=limit_s):
            if event["event"] == "result":
                result: dict[str, Any] = event["result"]
                low, high = result["speedup"]["ci95"]
                return TrialResult(
                    candidate_us=result["pruned"]["p50_us"],
                    original_us=result["original"]["p50_us"],
                    ratio=1 / result["speedup"]["median"],
                    ratio_ci95=(1 / high, 1 / low),
                    warnings=tuple(result["warnings"]),
                )
        raise FaultError("The device's agent ended without a result.", "Run it again; see also: catro-deploy doctor")

    def _export(self, network: nn.Module, name: str, precision: str) -> Path:
        file = self.folder / f"{name}.onnx"
        dynamic = self.use.batch > 1
        export_onnx(network, self.input_shape, file, opset=self.opset, dynamic_batch=dynamic, metadata={})
        convert_(file, precision, self.use.own_precision, self.use.runtime)
        return file

    def _job(self, candidate: Path) -> dict[str, Any]:
        files = {"original": "original.onnx", "pruned": candidate.name}
        return {
            "job": "bench",
            **self.use.opening,
            "modes": [{"batch": self.use.batch, **self.use.ways[0]}],
            "protocol": self.protocol.model_dump(),
            "models": {name: {"file": file, "metadata": {}} for name, file in files.items()},
        }


@contextmanager
def trial(
    original: nn.Module, input_shape: tuple[int, int, int], use: Use, protocol: LatencyProtocol, opset: int
) -> Iterator[Trial]:
    """Export ``original`` (eval mode, CPU) to a temporary folder and time candidates against it."""
    with tempfile.TemporaryDirectory(prefix="catro-deploy-trial-") as folder:
        made = Trial(Path(folder), use, protocol, opset, input_shape)
        made._export(original, "original", use.own_precision)
        yield made
