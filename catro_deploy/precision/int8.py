"""Networks in eight-bit integers, as ONNX with QuantizeLinear and DequantizeLinear nodes (Q/DQ).

Runtimes are fast with different graphs, so there are three forms:

- ``X86``: unsigned activations with zero-points, int32 biases, activation functions merged into what follows. ONNX
  Runtime's CPU provider fuses it into integer kernels from end to end.
- ``OPENVINO``: the same, but operators without an integer kernel read the layer before them directly, so that OpenVINO
  fuses the two; logits are not quantised, and means are quantised before they are reshaped, since both would otherwise
  be separate kernels. Biases are in floating point.
- ``TENSORRT``: signed integers, all zero-points 0, biases in floating point, weights with their own Q/DQ pair,
  activation functions kept. A residual sum reads its skip branch through Q/DQ and the convolution before it directly,
  so that TensorRT fuses the two (TensorRT's developer guide, "Q/DQ layer placement recommendations").

In all forms, weights are symmetric and have one scale per output channel. onnxruntime.quantization does the work.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from catro_deploy.precision.graph import importable_tools, layers_of, reading_only, require_float, sort_
from catro_deploy.precision.ranges import Range

__all__ = [
    "FORMS", "OPENVINO", "TENSORRT", "WIDE_SUMS", "X86", "Form", "for_scales_in_half", "form_of", "quantised",
    "seven_bits",
]  # fmt: skip

Proto = Any
"""An onnx.ModelProto, which has no annotations."""

# Instruction sets that sum products of eight-bit integers in 32 bits. Without one of them ONNX Runtime and OpenVINO sum
# pairs of products in 16 bits, which overflow unless weights have seven bits.
WIDE_SUMS = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})
X86_SETS = frozenset({"avx2", "avx512f"})


SCALES_IN_HALF = 19
"""The first opset in which the scales of integers may be in half precision."""


@dataclass(frozen=True)
class Form:
    """``operators`` are those whose inputs are quantised; ``outputs`` is whether their outputs are, too."""

    name: str
    signed: bool
    outputs: bool
    operators: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


X86 = Form(
    "x86",
    signed=False,
    outputs=True,
    # Operators with integer kernels in the CPU provider, or that pass integers through.
    operators=(
        "Add", "AveragePool", "Clip", "Concat", "Conv", "Flatten", "Gemm", "GlobalAveragePool", "LeakyRelu", "MatMul",
        "MaxPool", "Mul", "Pad", "Relu", "Reshape", "Resize", "Sigmoid", "Slice", "Split", "Squeeze", "Transpose",
        "Unsqueeze",
    ),
)  # fmt: skip
OPENVINO = Form(
    "openvino",
    signed=False,
    outputs=True,
    operators=(*(name for name in X86.operators if name != "Sigmoid"), "ReduceMean"),
    options={"QuantizeBias": False, "OpTypesToExcludeOutputQuantization": ["Gemm", "MatMul"]},
)
TENSORRT = Form(
    "tensorrt",
    signed=True,
    outputs=False,
    operators=("Add", "Conv", "ConvTranspose", "Gemm", "MatMul"),
    options={
        "ActivationSymmetric": True,
        "AddQDQPairToWeight": True,
        "QuantizeBias": False,
        "QDQKeepRemovableActivations": True,
    },
)
FORMS = {form.name: form for form in (X86, OPENVINO, TENSORRT)}


def form_of(runtime: str) -> Form:
    """The form in which ``runtime``, a name in the registry, runs fast."""
    if runtime.startswith("openvino"):
        return OPENVINO
    return X86 if runtime == "onnxruntime" else TENSORRT


def seven_bits(instruction_sets: Collection[str]) -> bool:
    """Whether weights must have seven bits on a processor with these ``instruction_sets``."""
    return bool(X86_SETS.intersection(instruction_sets)) and not WIDE_SUMS.intersection(instruction_sets)


def for_scales_in_half(proto: Proto) -> Proto:
    """``proto``, converted if needed to an opset in which the scales of integers may be in half precision."""
    import onnx

    if next(entry.version for entry in proto.opset_import if entry.domain == "") >= SCALES_IN_HALF:
        return proto
    newer = onnx.version_converter.convert_version(proto, SCALES_IN_HALF)
    onnx.helper.set_model_props(newer, {prop.key: prop.value for prop in proto.metadata_props})
    return newer


def quantised(
    proto: Proto,
    ranges: Mapping[str, Range],
    form: Form,
    *,
    keep: Collection[str] = (),
    only: Collection[str] = (),
    by_channel: bool = True,
    narrow: bool = False,
) -> Proto:
    """The float32 ``proto`` quantised in ``form``; the layers ``keep`` stay in float32, or all but ``only`` if given.

    Operators that read only layers in float32, such as sums, stay in float32 as well.

    ``ranges`` are those of all its values. Weights have one scale per output channel or, without ``by_channel``, one
    for all; with ``narrow``, they have seven bits.

    Raises:
        ModelError: it is quantised already.
    """
    import onnx

    with importable_tools():
        from onnxruntime.quantization import CalibrationMethod, QDQQuantizer, QuantType, TensorData, TensorsData

    require_float(proto, "The network")
    nodes = layers_of(proto.graph)
    copy = onnx.shape_inference.infer_shapes(proto)
    known = {name: TensorData(lowest=np.float32(of.low), highest=np.float32(of.high)) for name, of in ranges.items()}
    options = {"WeightSymmetric": True, **form.options}
    if not form.outputs:
        options["OpTypesToExcludeOutputQuantization"] = sorted({node.op_type for node in copy.graph.node})
    with _silenced():
        quantizer = QDQQuantizer(
            copy,
            per_channel=by_channel,
            reduce_range=narrow,
            weight_qType=QuantType.QInt8,
            activation_qType=QuantType.QInt8 if form.signed else QuantType.QUInt8,
            tensors_range=TensorsData(CalibrationMethod.MinMax, known),
            nodes_to_quantize=[nodes[layer] for layer in only],
            nodes_to_exclude=[*(nodes[layer] for layer in keep), *reading_only(copy.graph, keep)],
            op_types_to_quantize=list(form.operators),
            extra_options=options,
        )
        quantizer.quantize_model()
    found = quantizer.model.model
    if form is TENSORRT:
        _free_sums_(found.graph)
    if form is OPENVINO:
        _free_floats_(found.graph)
    sort_(found.graph)
    del found.graph.value_info[:]  # of removed values
    onnx.helper.set_model_props(found, {prop.key: prop.value for prop in proto.metadata_props} | {"precision": "int8"})
    onnx.checker.check_model(found, full_check=True)
    return found


def _free_sums_(graph: Any) -> None:  # noqa: ANN401 - onnx.GraphProto
    """Let each sum read the last convolution of its longest branch directly, not through Q/DQ."""
    made_by = {name: node for node in graph.node for name in node.output}
    depths: dict[str, int] = {}

    def depth(name: str) -> int:
        """Number of convolutions and matrix products on the longest path to the value ``name``."""
        waiting = [name]
        while waiting:
            node = made_by.get(waiting[-1])
            missing = [one for one in (node.input if node is not None else ()) if one not in depths]
            if missing:
                waiting += missing
                continue
            own = node is not None and node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")
            before = max((depths[one] for one in node.input), default=0) if node is not None else 0
            depths[waiting.pop()] = before + own
        return depths[name]

    for node in graph.node:
        if node.op_type != "Add":
            continue
        plain = [_before_pair(made_by, name) for name in node.input]
        convolved = [i for i, name in enumerate(plain) if name and made_by[name].op_type in ("Conv", "ConvTranspose")]
        if convolved:
            longest = max(convolved, key=lambda i: depth(node.input[i]))
            node.input[longest] = plain[longest]


def _free_floats_(graph: Any) -> None:  # noqa: ANN401 - onnx.GraphProto
    """Let operators that compute in floating point read the inputs of Q/DQ pairs instead of their outputs."""
    made_by = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type in (*OPENVINO.operators, "QuantizeLinear", "DequantizeLinear"):
            continue
        for place, name in enumerate(node.input):
            node.input[place] = _before_pair(made_by, name) or name


def _before_pair(made_by: Mapping[str, Any], name: str) -> str:
    """The input of the Q/DQ pair with the output ``name``; empty if there is none, or for a constant."""
    for operator in ("DequantizeLinear", "QuantizeLinear"):
        node = made_by.get(name)
        if node is None or node.op_type != operator:
            return ""
        name = node.input[0]
    return name if name in made_by else ""


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence messages of the quantiser that are meant for its own developers."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
