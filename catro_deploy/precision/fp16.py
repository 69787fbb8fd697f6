"""An ONNX network with half-precision types, for runtimes that take the precision from the file (TensorRT).

Inputs stay float32 and are followed by a cast; logits stay float32 and follow one. Nodes that would overflow also stay
in float32.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import NumericsError
from catro_deploy.files import replacing
from catro_deploy.precision.graph import importable_tools, pieces, sort_
from catro_deploy.precision.ranges import find_ranges
from catro_deploy.runtimes import open_runner

__all__ = ["write_fp16"]

Floats = NDArray[np.float32]

FLOAT, FLOAT16 = 1, 10
"""Values of TensorProto.DataType."""
LARGEST = 65504.0
# Other images have other values: nodes whose values are within this factor of the largest number stay in float32.
MARGIN = 4.0
# Allowed difference of logits in half precision and float32, relative to the largest: numbers have 11 bits.
AGREEMENT = 0.03
IMAGES = 8


def write_fp16(source: Path, path: Path, images: Floats | None = None) -> tuple[str, ...]:
    """Write the float32 network ``source`` to ``path`` in half precision; return the nodes that stay in float32.

    These are nodes whose weights, or outputs on normalised ``images`` (n, c, h, w; default: random ones), come near the
    largest number of half precision. The file is put in place once ONNX Runtime has computed logits from it that
    agree with those of ``source`` to within ``AGREEMENT``. Caveat: on a CPU, ONNX Runtime rounds the weights and cast
    values, but computes in float32; the accuracy in half precision must be measured on the device.

    Raises:
        NumericsError: its logits differ by more, or a value of ``source`` is not finite.
    """
    import onnx

    proto = onnx.load(source)
    images = _images(proto) if images is None else images
    kept = _overflowing(proto, images)
    half = _converted(proto, kept)
    onnx.helper.set_model_props(half, {prop.key: prop.value for prop in proto.metadata_props} | {"precision": "fp16"})
    onnx.checker.check_model(half, full_check=True)
    with replacing(path) as temporary:
        temporary.write_bytes(half.SerializeToString())
        _check_agreement(source, temporary, path.name, pieces(proto, images)[:IMAGES])
    return tuple(sorted(kept))


def _images(proto: Any) -> Floats:  # noqa: ANN401 - onnx.ModelProto
    sizes = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    count = sizes[0] or IMAGES
    return np.random.default_rng(0).standard_normal((count, *sizes[1:])).astype(np.float32)


def _overflowing(proto: Any, images: Floats) -> set[str]:  # noqa: ANN401 - as above
    """Names of the nodes with inputs or outputs too large for half precision."""
    from onnx import numpy_helper

    weights = {tensor.name: _size(numpy_helper.to_array(tensor)) for tensor in proto.graph.initializer}
    outputs = {name: max(-of.low, of.high) for name, of in find_ranges(proto, images, "min-max").items()}
    large = {name for name, size in (weights | outputs).items() if size * MARGIN > LARGEST}
    return {node.name for node in proto.graph.node if large & {*node.input, *node.output}}


def _size(values: NDArray[Any]) -> float:
    is_float = values.dtype == np.float32 and values.size
    return float(np.abs(values).max()) if is_float else 0.0


def _converted(proto: Any, kept: Collection[str]) -> Any:  # noqa: ANN401 - as above
    with importable_tools():
        from onnxruntime.transformers.float16 import convert_float_to_float16

        # Every operator of a classifier exists in half precision: no type of node is excluded as a whole.
        half = convert_float_to_float16(proto, keep_io_types=True, op_block_list=[], node_block_list=list(kept))
    _connect_(half.graph)
    sort_(half.graph)
    return half


def _connect_(graph: Any) -> None:  # noqa: ANN401 - onnx.GraphProto
    """Remove casts between nodes that stay in float32; the converter casts all values between them to half and back."""
    made_by = {name: node for node in graph.node for name in node.output}

    def origin(name: str) -> str:
        there = made_by.get(name)
        back = made_by.get(there.input[0]) if there is not None and _casts_to(there, FLOAT) else None
        return str(back.input[0]) if back is not None and _casts_to(back, FLOAT16) else name

    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = origin(name)
    while unread := [node for node in graph.node if node.op_type == "Cast" and not _is_read(graph, node)]:
        for node in unread:
            graph.node.remove(node)


def _casts_to(node: Any, kind: int) -> bool:  # noqa: ANN401 - onnx.NodeProto
    return node.op_type == "Cast" and any(a.name == "to" and a.i == kind for a in node.attribute)


def _is_read(graph: Any, node: Any) -> bool:  # noqa: ANN401 - as above
    read = {name for other in graph.node for name in other.input} | {value.name for value in graph.output}
    return not read.isdisjoint(node.output)


def _check_agreement(source: Path, half: Path, name: str, parts: Sequence[Floats]) -> None:
    logits = []
    for file in (source, half):
        with open_runner("onnxruntime", file, threads=1) as runner:
            logits.append(np.concatenate([runner.infer(images) for images in parts]))
    expected, found = logits
    apart = float(np.abs(expected - found).max() / np.abs(expected).max())
    if not apart <= AGREEMENT:  # also if it is NaN
        raise NumericsError(
            f"{name} computes different logits in half precision: they differ by {apart:.1%} of the largest.",
            'Serve it in float32: precision = "fp32" in a target of your own (catro-deploy targets add).',
        )
