"""A quantised network after ONNX Runtime's optimisation: which nodes compute in integers."""

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Fused", "fused"]

INTEGER = ("QLinear", "QGemm", "ConvInteger", "MatMulInteger")
# Operators that pass integers on, with negligible arithmetic.
CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True)
class Fused:
    """How many nodes there are of each operator after all fusions."""

    operators: Mapping[str, int]

    @property
    def integer(self) -> int:
        """Nodes that compute in integers."""
        return sum(count for name, count in self.operators.items() if name.startswith(INTEGER))

    @property
    def weighted_in_float(self) -> int:
        """Convolutions and matrix products that compute in floating point."""
        return sum(self.operators.get(name, 0) for name in ("Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul"))

    @property
    def conversions(self) -> int:
        """Nodes that only convert between floating point and integers."""
        return sum(self.operators.get(name, 0) for name in CONVERSIONS)


def fused(model: Path) -> Fused:
    """The nodes of the ONNX file ``model`` after the optimisation of ONNX Runtime's CPU provider on this machine."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(prefix="catro-deploy-fused-") as folder:
        optimised = Path(folder, "optimised.onnx")
        options.optimized_model_filepath = str(optimised)
        onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        graph = onnx.load(optimised, load_external_data=False).graph
    return Fused(dict(sorted(Counter(node.op_type for node in graph.node).items())))
