"""A network resized from one export equals an export of the really cut network, except for the weights."""

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

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.graph.onnx.onnx_layers import layer_of
from catro_deploy.graph.onnx.skeleton import WEIGHTS, Skeleton
from catro_deploy.latency.template import weights_of
from catro_deploy.models import build_model
from catro_deploy.records import Keep
from catro_deploy.runtimes import open_runner
from tests.graph.cut_networks import CASES
from tests.graph.export_networks import LARGE, SMALL, alike
from tests.onnx_files import write_after_conv


def exported(model: nn.Module, size: int, folder: Path, batch: int = 1) -> Any:
    file = folder / "exported.onnx"
    export_onnx(model, (3, size, size), file, opset=18, dynamic_batch=batch > 1, metadata={})
    return onnx.load(file)


def random_keeps(network: Network, generator: np.random.Generator) -> dict[str, Keep]:
    """Some channels of each group, not all, at least two of three or more: a factor of one channel is not folded."""
    kept = {
        group.name: sorted(generator.permutation(group.width)[: generator.integers(1 + (group.width > 2), group.width)])
        for group in network.groups
        if not group.fixed and group.width > 1
    }
    return keeps_of(network.groups, kept, network.sizes)


def skeleton_of(model: nn.Module, network: Network, folder: Path, batch: int = 1) -> Skeleton:
    proto = exported(model, network.input_shape[1], folder, batch)
    return Skeleton(proto, network.sizes, weights_of(model, [layer.name for layer in network.layers]))


def inventory(proto: Any) -> Counter:
    """Each node's operator, groups and constants: shapes of floats, shapes and values of integers."""
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


def shapes_of(proto: Any) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer}


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


def assert_computes(proto: Any, expected: nn.Module, folder: Path, size: int, batch: int) -> None:
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, folder / "cut.onnx")
    images = torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0))
    with open_runner("onnxruntime", folder / "cut.onnx", 1) as runner, torch.inference_mode():
        torch.testing.assert_close(
            torch.from_numpy(runner.infer(images.numpy())), expected(images), rtol=1e-4, atol=1e-5
        )


def assert_as_really_cut(model: nn.Module, size: int, folder: Path, seeds: range, batch: int = 1) -> Skeleton:
    network = trace(model, (3, size, size))
    skeleton = skeleton_of(model, network, folder, batch)
    for seed in seeds:
        keeps = random_keeps(network, np.random.default_rng(seed))
        assert keeps
        really_cut = apply_keeps_(copy.deepcopy(model), keeps)
        really = exported(really_cut, size, folder, batch)
        assert inventory(skeleton.resized(keeps)) == inventory(really)
        assert_runs(skeleton, keeps, folder, size, batch)
        assert_computes(skeleton.cut(keeps), really_cut, folder, size, batch)
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
    shapes = shapes_of(resized)
    biases = [shapes[node.input[2]] for node in resized.graph.node if node.op_type == "Conv"]
    assert biases == [(2,), (7,), (4,)]


def test_several_images_at_a_time(tmp_path):
    assert_as_really_cut(SMALL["flattened"](), 8, tmp_path, range(1), batch=3)


@pytest.mark.slow
@pytest.mark.timeout(900)  # two exports of more than a hundred layers
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
    skeleton.write({}, tmp_path / "full.onnx")  # nothing of the other network is left in the skeleton
    assert (tmp_path / "full.onnx").read_bytes() == before


def test_nodes_belong_to_the_layer_whose_output_they_work_on(tmp_path):
    model = SMALL["branches"]()
    skeleton = Skeleton(exported(model, 8, tmp_path), trace(model, (3, 8, 8)).sizes)
    assert skeleton.operators["left"] == ("Conv 3x3", "Relu", "Concat", "Mul", "Add", "Relu")
    assert skeleton.operators["depthwise"][:2] == ("Conv 3x3", "PRelu")
    assert skeleton.operators["last"] == ("Conv 3x3 strides 2x2", "Relu", "Reshape")
    assert skeleton.operators["fc"] == ("Gemm",)


def test_names_contain_the_layer():
    assert layer_of("layer1.0.conv1::12") == "layer1.0.conv1"
    assert layer_of("layer1.0.conv1::12.0_nchwc") == "layer1.0.conv1"
    assert layer_of("fused classifier.1::15") == "classifier.1"
    assert layer_of("ReorderOutput_token_7") is None


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_square_linear_layer_is_cut_on_the_right_sides(tmp_path, transposed):
    """From 8 to 8 channels, the shape does not show which side is which."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["features"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["logits"], transB=transposed),
    ]
    constants = {"fc.weight": np.ones((8, 8), np.float32), "fc.bias": np.ones((1, 8), np.float32)}
    skeleton = Skeleton(write_after_conv(tmp_path, nodes, constants, [1, 8]), {"first": (8, 3), "fc": (8, 8)})
    keeps = {"first": Keep(out=(0, 1, 2)), "fc": Keep(inputs=(0, 1, 2), out=(0, 1, 2, 3, 4))}
    shapes = shapes_of(skeleton.resized(keeps))
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
    shapes = shapes_of(skeleton.resized(keeps))
    assert shapes["last.weight"] == (5, 7, 1, 1)
    assert (shapes["mean"], shapes["grid"]) == ((3, 1, 1), (1, 2, 4, 4))
    assert_runs(skeleton, keeps, tmp_path, 4)


def test_weights_that_are_of_no_module_stay_as_they_are(tmp_path):
    """The channels that they read cannot be cut; their node belongs to the previous layer."""
    nodes = [helper.make_node("Conv", ["features", "kernel"], ["logits"])]
    proto = write_after_conv(tmp_path, nodes, {"kernel": np.ones((5, 8, 1, 1), np.float32)}, [1, 5, 4, 4])
    skeleton = Skeleton(proto, {"first": (8, 3)})
    assert skeleton.operators == {"first": ("Conv", "Conv")}
    assert_runs(skeleton, {}, tmp_path, 4)
    with pytest.raises(ModelError, match=r"\bConv\b.*\bfirst\b"):
        skeleton.resized({"first": Keep(out=(0, 1))})


def test_weights_outside_modules_are_cut_by_their_own_names(tmp_path):
    nodes = [helper.make_node("Conv", ["features", "block.kernel"], ["logits"])]
    proto = write_after_conv(tmp_path, nodes, {"block.kernel": np.ones((5, 8, 1, 1), np.float32)}, [1, 5, 4, 4])
    skeleton = Skeleton(proto, {"first": (8, 3), "block.kernel": (5, 8)})
    keeps = {"first": Keep(out=(0, 1)), "block.kernel": Keep(inputs=(0, 1), out=(0, 3, 4))}
    assert shapes_of(skeleton.resized(keeps)) == {"first.weight": (2, 3, 1, 1), "block.kernel": (3, 2, 1, 1)}
    assert skeleton.operators == {"first": ("Conv",), "block.kernel": ("Conv",)}


def test_weights_are_found_by_their_values(tmp_path):
    """Unchanged, transposed for a matrix product, and with a factor for each output."""
    generator = np.random.default_rng(0)
    conv, linear = (generator.standard_normal(shape, np.float32) for shape in ((4, 8, 3, 3), (5, 4)))
    nodes = [
        helper.make_node("Conv", ["features", "folded"], ["less"]),
        helper.make_node("Transpose", ["less"], ["last"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["last", "turned"], ["logits"]),
    ]
    factors = np.array([1, -2, 0.3, 40], np.float32).reshape(4, 1, 1, 1)
    proto = write_after_conv(tmp_path, nodes, {"folded": conv * factors, "turned": linear.T.copy()}, [1, 2, 2, 5])
    sizes = {"first": (8, 3), "conv": (4, 8), "linear": (5, 4)}
    other = generator.standard_normal((4, 8, 3, 3), np.float32)
    skeleton = Skeleton(proto, sizes | {"other": (4, 8)}, {"other": other, "conv": conv, "linear": linear})
    assert list(skeleton.operators) == ["first", "conv", "linear"]
    keeps = {"conv": Keep(out=(0, 1, 2)), "linear": Keep(inputs=(0, 1, 2))}
    assert shapes_of(skeleton.resized(keeps)) == {
        "first.weight": (8, 3, 1, 1),
        "folded": (3, 8, 3, 3),
        "turned": (3, 5),
    }
    assert_runs(skeleton, keeps, tmp_path, 4)


def test_an_export_of_the_cut_network_takes_the_names_and_weights_of_the_skeleton(tmp_path):
    model = CASES["Grouped"].network()
    network = trace(model, (3, 8, 8))
    skeleton = skeleton_of(model, network, tmp_path)
    keeps = random_keeps(network, np.random.default_rng(0))
    cut = apply_keeps_(copy.deepcopy(model), keeps)
    proto = exported(cut, 8, tmp_path)
    skeleton.adopt_(proto, weights_of(cut, [layer.name for layer in network.layers]))
    mine = skeleton.resized(keeps)
    assert [node.name for node in proto.graph.node] == [node.name for node in mine.graph.node]
    outside = [
        {tensor.name: [(e.key, e.value) for e in tensor.external_data] for tensor in made.graph.initializer}
        for made in (mine, proto)
    ]
    assert {name: entries for name, entries in outside[0].items() if entries} == {
        name: entries for name, entries in outside[1].items() if entries
    }


def test_a_layer_without_channels_is_refused(tmp_path):
    nodes = [helper.make_node("Conv", ["features", "last.weight"], ["logits"])]
    proto = write_after_conv(tmp_path, nodes, {"last.weight": np.ones((5, 8, 1, 1), np.float32)}, [1, 5, 4, 4])
    skeleton = Skeleton(proto, {"first": (8, 3), "last": (5, 8)})
    with pytest.raises(ModelError, match=r"\bfirst\b"):
        skeleton.resized({"first": Keep(out=()), "last": Keep(inputs=())})


def test_widths_that_do_not_fit_together_are_refused(tmp_path):
    """Only one operand of an addition is cut, or the layer that reads the sum is not."""
    nodes = [
        helper.make_node("Conv", ["image", "other.weight"], ["other"]),
        helper.make_node("Add", ["features", "other"], ["sum"]),
        helper.make_node("Conv", ["sum", "last.weight"], ["logits"]),
    ]
    constants = {"other.weight": np.ones((8, 3, 1, 1), np.float32), "last.weight": np.ones((5, 8, 1, 1), np.float32)}
    skeleton = Skeleton(
        write_after_conv(tmp_path, nodes, constants, [1, 5, 4, 4]), {"first": (8, 3), "other": (8, 3), "last": (5, 8)}
    )
    with pytest.raises(ModelError, match=r"\bAdd\b.*\bfirst\b"):
        skeleton.resized({"first": Keep(out=(0, 1))})
    both = {"first": Keep(out=(0, 1)), "other": Keep(out=(0, 1))}
    with pytest.raises(ModelError, match=r"\bConv\b.*\blast\b"):
        skeleton.resized(both)
    assert_runs(skeleton, both | {"last": Keep(inputs=(0, 1))}, tmp_path, 4)
