"""Networks converted to a precision for timing only: their outputs do not matter."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from catro_deploy.files import write_bytes
from catro_deploy.precision.fp16 import write_fp16
from catro_deploy.precision.graph import present
from catro_deploy.precision.int8 import for_scales_in_half, form_of, quantised
from catro_deploy.precision.ranges import Range, find_ranges

__all__ = ["Integers", "convert_"]

Proto = Any
"""An onnx.ModelProto, which has no annotations."""

IMAGES = 2
# Constants of fewer bytes stay in the ONNX file.
SMALL_BYTES = 1024


def convert_(file: Path, precision: str, own: str, runtime: str, kept_in_float: Collection[str] = ()) -> None:
    """Convert the float32 network in ``file`` to ``precision``, in the form for ``runtime``, in place.

    In int8, its ranges are those of random images, and nodes that are not quantised, such as the layers
    ``kept_in_float``, are in the target's ``own`` precision.

    Raises:
        NumericsError: a value is not finite, or its logits in half precision are too different.
    """
    import onnx

    if precision == "int8":
        proto = for_scales_in_half(onnx.load(file)) if own == "fp16" else onnx.load(file)
        found = quantised(proto, _ranges(proto), form_of(runtime), keep=present(kept_in_float, proto.graph))
        write_bytes(file, found.SerializeToString())
    if "fp16" in (precision, own) and precision != "fp32":
        write_fp16(file, file)


class Integers:
    """Quantises networks of one skeleton, at other widths, in milliseconds, where real quantisation takes seconds.

    Ranges are those of the whole network, ``reference``; weights are not really quantised, but arbitrary bytes of the
    file that all networks share, and their scales are all equal. Their zero points are 0: others would select a much
    slower kernel. The layers ``kept_in_float`` are not quantised.
    """

    def __init__(self, reference: Path, runtime: str, kept_in_float: Collection[str] = ()) -> None:
        import onnx

        proto = onnx.load(reference)
        self._ranges: Mapping[str, Range] = _ranges(proto)
        self._form = form_of(runtime)
        self._keep = present(kept_in_float, proto.graph)

    def convert_(self, file: Path, weights: str) -> None:
        """Convert the network in ``file`` to int8 in place, with weights in the file ``weights`` in the same folder."""
        import onnx

        found = quantised(onnx.load(file), self._ranges, self._form, keep=self._keep, by_channel=False)
        _scale_each_channel_(found.graph)
        for tensor in found.graph.initializer:
            is_weight = tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) > 1
            if is_weight and len(tensor.raw_data) > SMALL_BYTES:
                _put_outside_(tensor, weights)
        write_bytes(file, found.SerializeToString())


def _ranges(proto: Proto) -> dict[str, Range]:
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    images = np.random.default_rng(0).standard_normal((shape[0] or IMAGES, *shape[1:])).astype(np.float32)
    return find_ranges(proto, images, "min-max")


def _scale_each_channel_(graph: Any) -> None:  # noqa: ANN401 - onnx.GraphProto
    """Repeat the scale of a convolution's weights, and of its bias, for each channel, which selects another kernel."""
    from onnx import helper, numpy_helper

    constants = {tensor.name: tensor for tensor in graph.initializer}
    made_by = {node.output[0]: node for node in graph.node}
    for conv in [node for node in graph.node if node.op_type == "Conv"]:
        for place in range(1, len(conv.input)):
            node = made_by.get(conv.input[place])
            while node is not None and node.input[0] in made_by:  # the Q/DQ pair of a weight that is stored in float32
                node = made_by[node.input[0]]
            if node is None or not constants[node.input[0]].dims:
                continue
            channels = constants[node.input[0]].dims[0]
            for name in node.input[1:]:
                value = numpy_helper.to_array(constants[name])
                constants[name].CopyFrom(numpy_helper.from_array(np.repeat(value.reshape(1), channels), name))
            if not any(attribute.name == "axis" for attribute in node.attribute):
                node.attribute.append(helper.make_attribute("axis", 0))


def _put_outside_(tensor: Any, weights: str) -> None:  # noqa: ANN401 - onnx.TensorProto
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = type(tensor).EXTERNAL
    for key, value in (("location", weights), ("offset", 0), ("length", size)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
