"""Bytes of files, and memory of feature maps, against counts by hand."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.graph.onnx.footprint import footprint_of, peak_bytes
from catro_deploy.precision.timing import convert_


def conv(name, source, made, channels, inputs, size=3):
    weight = numpy_helper.from_array(np.ones((channels, inputs, size, size), np.float32), f"{name}.weight")
    node = helper.make_node("Conv", [source, weight.name], [made], name, pads=[size // 2] * 4)
    return node, weight


def model(nodes, weights, image, output):
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("image", image), output)
    ]
    graph = helper.make_graph(nodes, "network", values[:1], values[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def block():
    """A residual block on 4x4 images: 3 channels to a stream of 8, with 16 inside the block."""
    stem, w1 = conv("stem", "image", "stem", 8, 3)
    inner, w2 = conv("inner", "rectified", "inner", 16, 8)
    outer, w3 = conv("outer", "inner_rectified", "outer", 8, 16)
    nodes = [
        stem,
        helper.make_node("Relu", ["stem"], ["rectified"]),
        inner,
        helper.make_node("Relu", ["inner"], ["inner_rectified"]),
        outer,
        helper.make_node("Add", ["rectified", "outer"], ["sum"]),
        helper.make_node("GlobalAveragePool", ["sum"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["logits"]),
    ]
    return model(nodes, [w1, w2, w3], [1, 3, 4, 4], ("logits", [1, 8]))


def test_a_residual_block_by_hand():
    # 16 positions, 4 bytes. Stem: 3 (image) + 8 channels. Inner: 8 (kept for the addition) + 16. Outer: 8 + 16 + 8.
    assert peak_bytes(block()) == 16 * 4 * (8 + 16 + 8)


def test_so_many_images_take_so_many_times_the_memory():
    proto = block()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert peak_bytes(proto, 5) == 5 * 16 * 4 * (8 + 16 + 8)


def test_a_map_that_is_read_later_is_not_overwritten():
    """The activation's input is added at the end: both are held while the second convolution runs."""
    stem, w1 = conv("stem", "image", "stem", 8, 3)
    inner, w2 = conv("inner", "rectified", "inner", 8, 8)
    nodes = [
        stem,
        helper.make_node("Relu", ["stem"], ["rectified"]),
        inner,
        helper.make_node("Add", ["stem", "inner"], ["logits"]),
    ]
    assert peak_bytes(model(nodes, [w1, w2], [1, 3, 4, 4], ("logits", [1, 8, 4, 4]))) == 16 * 4 * (8 + 8 + 8)


def test_a_gate_that_is_spread_over_a_map_overwrites_the_map_not_itself():
    stem, w1 = conv("stem", "image", "stem", 8, 3)
    nodes = [
        stem,
        helper.make_node("GlobalAveragePool", ["stem"], ["pooled"]),
        helper.make_node("Sigmoid", ["pooled"], ["gate"]),
        helper.make_node("Mul", ["gate", "stem"], ["logits"]),
    ]
    # First the stem and the image; then the stem and the 8 values of the gate.
    assert peak_bytes(model(nodes, [w1], [1, 3, 4, 4], ("logits", [1, 8, 4, 4]))) == 16 * 4 * (8 + 3)


class Two(nn.Module):
    """Two convolutions around an activation, on 8x8 images."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.two(torch.relu(self.one(x)))).mean((2, 3))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("exported") / "two.onnx"
    export_onnx(Two().eval(), (3, 8, 8), file, opset=18, metadata={})
    return file


# The second convolution reads 16 channels and makes 8, at 64 positions. With int8, the image (3 channels) stays float.
@pytest.mark.parametrize(("precision", "value_bytes"), [("fp32", 4), ("fp16", 2), ("int8", 1)])
def test_a_value_takes_the_bytes_of_its_precision(exported, tmp_path, precision, value_bytes):
    file = tmp_path / "two.onnx"
    file.write_bytes(exported.read_bytes())
    convert_(file, precision, "fp32", "onnxruntime")
    found = footprint_of(file)
    assert found.file_bytes == file.stat().st_size
    assert found.memory_bytes == 64 * value_bytes * (16 + 8)
