"""Operators on tensors with fewer channels, in hand-made networks: shapes by hand, confirmed by running them."""

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, helper, numpy_helper

from catro_deploy.errors import ModelError
from catro_deploy.graph.onnx.onnx_layers import describe
from catro_deploy.graph.onnx.skeleton import WEIGHTS, Skeleton
from catro_deploy.records import Keep
from catro_deploy.runtimes import open_runner
from tests.graph.operator_cases import FOLLOWED, REFUSED, Constants, ones
from tests.onnx_files import write_after_conv


def test_a_description_distinguishes_windows():
    assert describe(helper.make_node("Relu", ["a"], ["b"])) == "Relu"
    assert describe(helper.make_node("Conv", ["a", "w"], ["b"], kernel_shape=[1, 7], strides=[1, 1])) == "Conv 1x7"
    node = helper.make_node("Conv", ["a", "w"], ["b"], kernel_shape=[3, 3], strides=[2, 1], dilations=[2, 2], group=4)
    assert describe(node) == "Conv 3x3 strides 2x1 dilations 2x2"


def made(
    folder: Path, nodes: list[NodeProto], constants: Constants, full: list[int], kept: tuple[int, ...]
) -> tuple[tuple[int, ...], dict[str, object]]:
    """The logits' shape with only the ``kept`` ones of 8 channels (8x8 positions), and the constants in that case.

    ``full`` is the logits' shape with all channels. Float constants are described by shape, others by value.
    """
    skeleton = Skeleton(write_after_conv(folder, nodes, constants, full, size=8), {"first": (8, 3)})
    skeleton.write_weights(folder / WEIGHTS)
    resized = skeleton.resized({"first": Keep(out=kept)})
    del resized.graph.output[0].type.tensor_type.shape.dim[:]
    (folder / "resized.onnx").write_bytes(resized.SerializeToString())
    with open_runner("onnxruntime", folder / "resized.onnx", 1) as runner:
        logits = runner.infer(ones(1, 3, 8, 8))
    found: dict[str, object] = {}
    for tensor in resized.graph.initializer:
        if tensor.name in constants:
            is_float = constants[tensor.name].dtype == np.float32
            found[tensor.name] = tuple(tensor.dims) if is_float else numpy_helper.to_array(tensor).tolist()
    return logits.shape, found


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_left_is_followed(tmp_path, name):
    nodes, constants, full, kept, shape, left = FOLLOWED[name]
    assert made(tmp_path, nodes, constants, full, kept) == (shape, left)


@pytest.mark.parametrize("name", FOLLOWED)
def test_of_all_channels_nothing_is_changed(tmp_path, name):
    nodes, constants, full, *_ = FOLLOWED[name]
    unchanged = {n: array.shape if array.dtype == np.float32 else array.tolist() for n, array in constants.items()}
    assert made(tmp_path, nodes, constants, full, tuple(range(8))) == (tuple(full), unchanged)


def test_only_constants_on_the_axis_of_the_channels_are_cut(tmp_path):
    """With 8 channels of 8x8 positions, a factor for each column has eight values, too."""
    nodes = [
        helper.make_node("Mul", ["features", "by_column"], ["a"]),
        helper.make_node("Mul", ["a", "by_channel"], ["b"]),
        helper.make_node("Add", ["b", "everywhere"], ["logits"]),
    ]
    constants = {"by_column": ones(1, 1, 1, 8), "by_channel": ones(8, 1, 1), "everywhere": ones(1, 8, 8, 8)}
    _, found = made(tmp_path, nodes, constants, [1, 8, 8, 8], (1, 4, 7))
    assert found == {"by_column": (1, 1, 1, 8), "by_channel": (3, 1, 1), "everywhere": (1, 3, 8, 8)}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(tmp_path, name):
    nodes, constants, full, kept = REFUSED[name]
    operator, *_ = name.split()
    with pytest.raises(ModelError, match=rf"\b{operator}\b.*\bfirst\b") as caught:
        made(tmp_path, nodes, constants, full, kept)
    assert "%flops" in caught.value.hint


def test_an_operator_that_is_not_known_passes_whole_tensors(tmp_path):
    nodes, constants, full, _ = REFUSED["CumSum"]
    assert made(tmp_path, nodes, constants, full, tuple(range(8))) == (tuple(full), {"axis": 1})


def test_a_shape_that_is_computed_is_refused(tmp_path):
    nodes = [
        helper.make_node("Shape", ["features"], ["shape"]),
        helper.make_node("Reshape", ["features", "shape"], ["logits"]),
    ]
    with pytest.raises(ModelError, match=r"\bShape\b.*\bfirst\b"):
        made(tmp_path, nodes, {}, [1, 8, 8, 8], (0, 1))
    assert made(tmp_path, nodes, {}, [1, 8, 8, 8], tuple(range(8))) == ((1, 8, 8, 8), {})
