"""Networks resized from one export are those that an export of the really cut network gives, but for the weights."""

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional

from catro_deploy.errors import ModelError
from catro_deploy.graph.skeleton import WEIGHTS, Skeleton, layer_of
from catro_deploy.graph.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.trace import Network, trace
from catro_deploy.models import build_model
from catro_deploy.onnx_export import export_onnx
from catro_deploy.records import Keep
from catro_deploy.runtimes import open_runner
from tests.graph.networks import Branches, GatedConcat, Grouped, Residual, randomised
from tests.onnx_files import write_after_conv


class Flattened(nn.Module):
    """A map of 4x4 positions goes into a linear layer, another of 2x2 into the next by a view."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.fc = nn.Linear(6 * 4 * 4, 16)
        self.norm = nn.BatchNorm1d(16)
        self.pooled = nn.Linear(6 * 2 * 2, 16)
        self.last = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x))
        pooled = functional.max_pool2d(x, 2).view(x.shape[0], -1)
        return self.last(torch.relu(self.norm(self.fc(torch.flatten(x, 1))) + self.pooled(pooled)))


class Resizing(nn.Module):
    """Upsampling by a factor of four channels (as many as Resize has scales), and to a size; edges are padded."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.large = nn.Conv2d(3, 5, 3, padding=1)
        self.both = nn.Conv2d(9, 6, 3)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = functional.interpolate(functional.gelu(self.small(x)), scale_factor=2.0)
        large = functional.interpolate(functional.hardswish(self.large(x)), size=(x.shape[2], x.shape[3]))
        both = self.both(functional.pad(torch.cat([small, large], 1), (1, 1, 1, 1)))
        return self.fc(functional.leaky_relu(both).amax((2, 3)))


class Alike(nn.Module):
    """All biases are 0.5, which the exporter makes one constant, though the widths are of two groups."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(inputs, 8, 3, padding=1) for inputs in (3, 8, 8))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(torch.relu(conv(x)))
        return self.fc(x.mean((2, 3)))


def alike() -> nn.Module:
    model = Alike().eval()
    for conv in model.convs:
        nn.init.constant_(conv.bias, 0.5)
    return model


class Twice(nn.Module):
    """One convolution is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.again = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.again(torch.relu(self.again(torch.relu(self.stem(x))))))
        return self.fc(x.mean((2, 3)))


SMALL = {
    "residual": lambda: randomised(Residual()),
    "branches": lambda: randomised(Branches()),
    "gated": lambda: randomised(GatedConcat()),
    "grouped": lambda: randomised(Grouped()),
    "flattened": lambda: randomised(Flattened()),
    "resizing": lambda: randomised(Resizing()),
    "alike": alike,
    "twice": lambda: randomised(Twice()),
}
LARGE = {"cifar_resnet20": 32, "torchvision:mobilenet_v2": 32, "torchvision:squeezenet1_1": 48}


def exported(model: nn.Module, size: int, folder: Path, batch: int = 1) -> Any:
    file = folder / "exported.onnx"
    export_onnx(model, (3, size, size), file, opset=18, dynamic_batch=batch > 1, metadata={})
    return onnx.load(file)


def random_keeps(network: Network, generator: np.random.Generator) -> dict[str, Keep]:
    """Any channels of any number that leaves some to every module."""
    while True:
        kept = {
            group.name: sorted(generator.permutation(group.width)[: generator.integers(1, group.width + 1)])
            for group in network.groups
            if not group.fixed
        }
        keeps = keeps_of(network.groups, kept, network.sizes)
        if all(() not in (keep.out, keep.inputs) for keep in keeps.values()):
            return keeps


def inventory(proto: Any) -> Counter:
    """Each node's operator, group, and constants: shapes of float ones, values of integer ones."""
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}

    def described(tensor: Any) -> tuple:
        whole = tensor.data_type == TensorProto.INT64
        return (*tensor.dims, "is", *numpy_helper.to_array(tensor).ravel().tolist()) if whole else tuple(tensor.dims)

    return Counter(
        (
            node.op_type,
            tuple(attribute.i for attribute in node.attribute if attribute.name == "group"),
            tuple(described(constants[name]) for name in node.input if name in constants),
        )
        for node in proto.graph.node
    )


def assert_runs(skeleton: Skeleton, keeps: dict[str, Keep], folder: Path, size: int, batch: int = 1) -> None:
    skeleton.write_weights(folder / WEIGHTS)
    skeleton.write(keeps, folder / "resized.onnx")
    onnx.checker.check_model(folder / "resized.onnx", full_check=True)
    images = np.random.default_rng(0).standard_normal((batch, 3, size, size)).astype(np.float32)
    with open_runner("onnxruntime", folder / "resized.onnx", 1) as runner:
        logits = runner.infer(images)
    assert len(logits) == batch
    assert np.isfinite(logits).all()
    assert np.abs(logits).max() > np.finfo(np.float32).tiny  # no denormal numbers, which are slow


def assert_as_really_cut(model: nn.Module, size: int, folder: Path, seeds: range, batch: int = 1) -> Skeleton:
    network = trace(model, (3, size, size))
    skeleton = Skeleton(exported(model, size, folder, batch), network.sizes)
    for seed in seeds:
        keeps = random_keeps(network, np.random.default_rng(seed))
        really = exported(apply_keeps_(copy.deepcopy(model), keeps), size, folder, batch)
        assert inventory(skeleton.resized(keeps)) == inventory(really)
        assert_runs(skeleton, keeps, folder, size, batch)
    assert set(skeleton.operators) == {layer.name for layer in network.layers}
    assert {layer_of(node.name) for node in skeleton.resized({}).graph.node} == set(skeleton.operators)
    return skeleton


@pytest.mark.parametrize("name", SMALL)
def test_a_resized_network_is_that_of_an_export_of_the_cut_one(tmp_path, name):
    assert_as_really_cut(SMALL[name](), 8, tmp_path, range(1))


def test_constants_that_are_one_in_the_export_are_each_resized(tmp_path):
    model = alike()
    network = trace(model, (3, 8, 8))
    proto = exported(model, 8, tmp_path)
    assert len({node.input[2] for node in proto.graph.node if node.op_type == "Conv"}) == 1
    widths = {"convs.0": 2, "convs.1": 7, "convs.2": 4}
    keeps = keeps_of(network.groups, {name: range(width) for name, width in widths.items()}, network.sizes)
    resized = Skeleton(proto, network.sizes).resized(keeps)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in resized.graph.initializer}
    biases = [shapes[node.input[2]] for node in resized.graph.node if node.op_type == "Conv"]
    assert biases == [(2,), (7,), (4,)]


def test_several_images_at_a_time(tmp_path):
    assert_as_really_cut(SMALL["flattened"](), 8, tmp_path, range(1), batch=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_so_are_large_networks(tmp_path, name):
    torch.manual_seed(0)
    model = build_model(name, 5).eval()
    for module in model.modules():
        if getattr(module, "bias", None) is not None:
            nn.init.uniform_(module.bias, 0.1, 0.5)  # zeros are left out of the export
    assert_as_really_cut(model, LARGE[name], tmp_path, range(1))


def test_networks_differ_in_their_shapes_alone_and_are_small(tmp_path):
    model = SMALL["residual"]()
    network = trace(model, (3, 8, 8))
    skeleton = Skeleton(exported(model, 8, tmp_path), network.sizes)
    skeleton.write_weights(tmp_path / WEIGHTS)
    weights = sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    assert (tmp_path / WEIGHTS).stat().st_size == 4 * weights
    skeleton.write({}, tmp_path / "full.onnx")
    before = (tmp_path / "full.onnx").read_bytes()
    skeleton.write(random_keeps(network, np.random.default_rng(1)), tmp_path / "other.onnx")
    assert len((tmp_path / "other.onnx").read_bytes()) < 10_000
    skeleton.write({}, tmp_path / "full.onnx")  # nothing of the other one is left in the skeleton
    assert (tmp_path / "full.onnx").read_bytes() == before


def test_nodes_belong_to_the_layer_whose_output_they_work_on(tmp_path):
    model = SMALL["branches"]()
    skeleton = Skeleton(exported(model, 8, tmp_path), trace(model, (3, 8, 8)).sizes)
    assert skeleton.operators["left"] == ("Conv 3x3", "Relu", "Concat", "Mul", "Add", "Relu")
    assert skeleton.operators["depthwise"][:2] == ("Conv 3x3", "PRelu")
    assert skeleton.operators["last"] == ("Conv 3x3 strides 2x2", "Relu", "Reshape")
    assert skeleton.operators["fc"] == ("Gemm",)


def test_names_tell_the_layer():
    assert layer_of("layer1.0.conv1::12") == "layer1.0.conv1"
    assert layer_of("layer1.0.conv1::12.0_nchwc") == "layer1.0.conv1"
    assert layer_of("ReorderOutput_token_7") is None


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_square_linear_layer_is_cut_on_the_right_sides(tmp_path, transposed):
    """From 8 to 8 channels its shape does not tell which side is which."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["features"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["logits"], transB=transposed),
    ]
    constants = {"fc.weight": np.ones((8, 8), np.float32), "fc.bias": np.ones((1, 8), np.float32)}
    skeleton = Skeleton(write_after_conv(tmp_path, nodes, constants, [1, 8]), {"first": (8, 3), "fc": (8, 8)})
    keeps = {"first": Keep(out=(0, 1, 2)), "fc": Keep(inputs=(0, 1, 2), out=(0, 1, 2, 3, 4))}
    shapes = {tensor.name: tuple(tensor.dims) for tensor in skeleton.resized(keeps).graph.initializer}
    assert shapes["fc.weight"] == ((5, 3) if transposed else (3, 5))
    assert shapes["fc.bias"] == (1, 5)


def test_the_image_itself_may_be_normalised_and_concatenated(tmp_path):
    nodes = [
        helper.make_node("Sub", ["image", "mean"], ["normal"]),
        helper.make_node("Concat", ["normal", "features", "grid"], ["all"], axis=1),
        helper.make_node("Conv", ["all", "last.weight"], ["logits"]),
    ]
    constants = {
        "mean": np.ones((3, 1, 1), np.float32),
        "grid": np.ones((1, 2, 4, 4), np.float32),
        "last.weight": np.ones((5, 13, 1, 1), np.float32),
    }
    skeleton = Skeleton(write_after_conv(tmp_path, nodes, constants, [1, 5, 4, 4]), {"first": (8, 3), "last": (5, 13)})
    keeps = {"first": Keep(out=(0, 1)), "last": Keep(inputs=(0, 1, 2, 3, 4, 11, 12))}
    shapes = {tensor.name: tuple(tensor.dims) for tensor in skeleton.resized(keeps).graph.initializer}
    assert shapes["last.weight"] == (5, 7, 1, 1)
    assert (shapes["mean"], shapes["grid"]) == ((3, 1, 1), (1, 2, 4, 4))
    assert_runs(skeleton, keeps, tmp_path, 4)


def test_weights_that_are_of_no_module_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"weights of a Conv are not those of one module: first\.weight"):
        Skeleton(write_after_conv(tmp_path, [helper.make_node("Relu", ["features"], ["logits"])], {}, [1, 8, 4, 4]), {})


def test_a_layer_without_channels_is_refused(tmp_path):
    nodes = [helper.make_node("Conv", ["features", "last.weight"], ["logits"])]
    proto = write_after_conv(tmp_path, nodes, {"last.weight": np.ones((5, 8, 1, 1), np.float32)}, [1, 5, 4, 4])
    skeleton = Skeleton(proto, {"first": (8, 3), "last": (5, 8)})
    with pytest.raises(ModelError, match="first would be left without channels"):
        skeleton.resized({"first": Keep(out=()), "last": Keep(inputs=())})


def test_widths_that_do_not_fit_together_are_refused(tmp_path):
    """Two branches of an addition, of which one alone is cut."""
    nodes = [
        helper.make_node("Conv", ["image", "other.weight"], ["other"]),
        helper.make_node("Add", ["features", "other"], ["sum"]),
        helper.make_node("Conv", ["sum", "last.weight"], ["logits"]),
    ]
    constants = {"other.weight": np.ones((8, 3, 1, 1), np.float32), "last.weight": np.ones((5, 8, 1, 1), np.float32)}
    skeleton = Skeleton(
        write_after_conv(tmp_path, nodes, constants, [1, 5, 4, 4]), {"first": (8, 3), "other": (8, 3), "last": (5, 8)}
    )
    with pytest.raises(ModelError, match="holds a Add behind first"):
        skeleton.resized({"first": Keep(out=(0, 1))})
    both = {"first": Keep(out=(0, 1)), "other": Keep(out=(0, 1))}
    with pytest.raises(ModelError, match="holds a Conv behind last"):
        skeleton.resized(both)
    assert_runs(skeleton, both | {"last": Keep(inputs=(0, 1))}, tmp_path, 4)
