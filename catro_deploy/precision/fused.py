"""Which nodes of a quantised network compute in integers after a runtime has optimised it for a CPU."""

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from catro_deploy.errors import RuntimeMissingError
from catro_deploy.records import computes_in_integers
from catro_deploy.runtimes.ov_library import core

__all__ = ["Fused", "fused"]

# Operators that pass integers on, with negligible arithmetic.
CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
# OpenVINO's nodes that hold values, and those that move them, whatever their type.
HELD = ("Input", "Output", "Const")
MOVES = ("Concat", "Reorder", "Reshape", "Split", "Transpose")


@dataclass(frozen=True)
class Fused:
    """Number of nodes of each operator after all fusions."""

    operators: Mapping[str, int]

    @property
    def integer(self) -> int:
        """Nodes that compute in integers."""
        return sum(count for name, count in self.operators.items() if computes_in_integers(name))

    @property
    def weighted_in_float(self) -> int:
        """Convolutions and matrix products that compute in floating point."""
        return sum(self.operators.get(name, 0) for name in ("Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul"))

    @property
    def conversions(self) -> int:
        """Nodes that only convert between floating point and integers."""
        return sum(self.operators.get(name, 0) for name in CONVERSIONS)


def fused(model: Path, runtime: str = "onnxruntime") -> Fused:
    """The nodes of the ONNX file ``model`` after optimisation for this machine's CPU, by OpenVINO or else ONNX Runtime.

    ``_I8`` is appended to the type of OpenVINO's nodes that compute in integers, as in the names of its kernels; there
    are no nodes if OpenVINO is not installed here.
    """
    operators = _by_openvino(model) if runtime.startswith("openvino") else _by_onnx_runtime(model)
    return Fused(dict(sorted(Counter(operators).items())))


def _by_onnx_runtime(model: Path) -> list[str]:
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(prefix="catro-deploy-fused-") as folder:
        optimised = Path(folder, "optimised.onnx")
        options.optimized_model_filepath = str(optimised)
        onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        graph = onnx.load(optimised, load_external_data=False).graph
    return [node.op_type for node in graph.node]


def _by_openvino(model: Path) -> list[str]:
    try:
        network = core().compile_model(str(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    except RuntimeMissingError:
        return []
    found = []
    for node in network.get_runtime_model().get_ops():
        kind, kernel = (node.get_rt_info()[key].astype(str) for key in ("layerType", "primitiveType"))
        if kind not in HELD:
            found.append(f"{kind}_I8" if kernel.endswith("_I8") and kind not in MOVES else kind)
    return found
