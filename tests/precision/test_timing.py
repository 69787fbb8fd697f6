"""Quantised networks for timing: the same kernels as the real ones, in small files."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.latency.profile.subject import REFERENCE, opened
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import load_checkpoint
from catro_deploy.precision.fused import fused
from catro_deploy.precision.int8 import X86, quantised
from catro_deploy.precision.ranges import find_ranges
from catro_deploy.precision.timing import convert_
from catro_deploy.runtimes import open_runner
from catro_deploy.transports.execution import Use
from tests.precision.nets import SHAPE, concat, images, network

INT8 = Use("x86-cpu", "onnxruntime", "int8", threads=1, batch=1)


@pytest.mark.parametrize("name", ["cifar_resnet20", "torchvision:mobilenet_v2"])
def test_other_widths_take_the_kernels_of_the_real_network(tmp_path, name):
    real = tmp_path / "real.onnx"
    proto = network(name)
    real.write_bytes(quantised(proto, find_ranges(proto, images(1), "min-max"), X86).SerializeToString())
    model = build_model(name, 5).eval()
    with opened(model, trace(model, SHAPE), INT8, 18, print) as subject:
        whole = subject.write(subject.full, "whole")
        narrow = subject.write({group.name: max(3, group.width // 3) for group in subject.groups}, "narrow")
        assert fused(whole).operators == fused(narrow).operators == fused(real).operators
        assert whole.stat().st_size < 0.5 * real.stat().st_size
        shapes = [list(tensor.dims) for tensor in onnx.load(narrow).graph.initializer if tensor.name.endswith("_scale")]
        assert any(shape and shape != [1] for shape in shapes)  # scales by channel
        with open_runner("onnxruntime", narrow, 1, profiling=True) as runner:
            runner.infer(images(1))
            names, _ = runner.node_times()
        layers = {node.partition("::")[0] for node in names if "::" in node}
        assert layers >= {layer.name for layer in subject.network.layers}


def test_zero_points_of_wide_layers_are_0_as_in_the_real_network(tmp_path):
    """With others, ONNX Runtime selects a kernel that is dozens of times slower."""
    wide = 1152  # the file holds zero points of up to 1024 channels
    layers = [nn.Conv2d(3, wide, 1), nn.ReLU(), nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 5)).eval()
    with opened(model, trace(model, SHAPE), INT8, 18, print) as subject:
        graph = onnx.load(subject.write(subject.full, "whole")).graph
    points = [tensor for tensor in graph.initializer if tensor.name.endswith("_zero_point")]
    assert any(wide in tensor.dims for tensor in points)
    assert not any(onnx.numpy_helper.to_array(tensor).any() for tensor in points if tensor.data_type == 3)


@pytest.mark.parametrize(
    ("precision", "own", "types"),
    [
        ("fp32", "fp32", {onnx.TensorProto.FLOAT}),
        ("fp16", "fp16", {onnx.TensorProto.FLOAT16}),
        ("int8", "fp32", {onnx.TensorProto.FLOAT, onnx.TensorProto.INT8}),
        ("int8", "fp16", {onnx.TensorProto.FLOAT16, onnx.TensorProto.INT8}),
        ("fp32", "fp16", {onnx.TensorProto.FLOAT}),
    ],
)
def test_a_candidate_is_in_its_precision_and_the_rest_in_the_targets(tmp_path, precision, own, types):
    file = tmp_path / "x.onnx"
    file.write_bytes(network("concat").SerializeToString())
    convert_(file, precision, own, "tensorrt")
    weights = [tensor for tensor in onnx.load(file).graph.initializer if len(tensor.dims) > 1 or tensor.data_type == 3]
    found = {tensor.data_type for tensor in weights} - {onnx.TensorProto.INT64}
    assert found == types
    with open_runner("onnxruntime", file, 1) as runner:
        assert runner.infer(images(1)).shape == (1, 5)


def test_biases_that_a_product_in_half_precision_cannot_hold_stay_what_they_are(tmp_path):
    """ONNX Runtime would round the first layer's to multiples of the scales' product, which is 0 in half precision.

    A scale is a 127th of the largest value: for inputs of 4 and weights of 1e-4, the product is 2.5e-8.
    """
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
    with torch.no_grad():
        first.weight.uniform_(-1e-4, 1e-4)
        first.bias.uniform_(0.5, 1.5)
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), *pooled).eval()
    file = tmp_path / "x.onnx"
    export_onnx(model, SHAPE, file, opset=18, metadata={})
    convert_(file, "int8", "fp16", "tensorrt")
    with open_runner("onnxruntime", file, 1) as runner:
        found = runner.infer(images(1))
    assert found == pytest.approx(model(torch.from_numpy(images(1))).detach().numpy(), rel=0.03, abs=0.01)


def quantised_layers(file):
    """How many layers of ``file`` have quantised weights, and how many layers there are."""
    graph = onnx.load(file, load_external_data=False).graph
    dequantised = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    weighted = [node for node in graph.node if node.op_type in {"Conv", "Gemm", "MatMul"}]
    return sum(node.input[1] in dequantised for node in weighted), len(weighted)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "tensorrt"])
def test_layers_that_a_recipe_keeps_are_timed_in_floating_point(tmp_path, runtime):
    kept = ("left", "fc", "another network's")
    file = tmp_path / "x.onnx"
    file.write_bytes(network("concat").SerializeToString())
    convert_(file, "int8", "fp32", runtime, kept)
    assert quantised_layers(file) == (3, 5)
    model = concat().eval()
    with opened(model, trace(model, SHAPE), replace(INT8, runtime=runtime, kept_in_float=kept), 18, print) as subject:
        narrow = subject.write({group.name: group.width // 2 for group in subject.groups}, "narrow")
        assert quantised_layers(subject.folder / REFERENCE) == quantised_layers(narrow) == (3, 5)


def halved(model):
    """``model`` with the first half of the channels of each group that may be pruned."""
    network = trace(model, SHAPE)
    kept = {group.name: range(-(-group.width // 2)) for group in network.groups if not group.fixed}
    return apply_keeps_(model, keeps_of(network.groups, kept, network.sizes)).eval()


@pytest.fixture(scope="module", params=["cifar10_resnet20", "gtsrb_resnet20", "cifar10_resnet56"])
def trained(request, test_data):
    """The trained network; exporting one takes seconds, so all precisions share it."""
    path = test_data / "weights" / f"{request.param}.pth"
    if not path.is_file():
        pytest.skip(f"{path} does not exist")
    classes = 43 if request.param.startswith("gtsrb") else 10
    model = build_model(f"cifar_{request.param.split('_')[1]}", classes).eval()
    load_checkpoint(model, path)
    return model


@pytest.fixture(scope="module", params=[False, True], ids=["original", "candidate"])
def trained_file(request, trained, tmp_path_factory):
    file = tmp_path_factory.mktemp("trained") / "x.onnx"
    model = halved(copy.deepcopy(trained)) if request.param else trained
    export_onnx(model, SHAPE, file, opset=18, metadata={})
    return file


@pytest.mark.parametrize(("precision", "own"), [("fp32", "fp32"), ("fp16", "fp16"), ("int8", "fp16"), ("int8", "fp32")])
def test_of_trained_networks_every_precision_of_tensorrt_is_written(tmp_path, trained_file, precision, own):
    """Biases that ONNX Runtime rounds to multiples of scales in half precision would be far off."""
    file = Path(shutil.copy(trained_file, tmp_path))
    convert_(file, precision, own, "tensorrt")
    with open_runner("onnxruntime", file, 1) as runner:
        assert np.isfinite(runner.infer(images(1))).all()
