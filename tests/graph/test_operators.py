"""Operators that treat all channels alike, and others, in networks made by hand."""

import numpy as np
import pytest
from onnx import helper

from catro_deploy.errors import ModelError
from catro_deploy.graph.operators import describe
from catro_deploy.graph.skeleton import Skeleton
from catro_deploy.records import Keep
from tests.onnx_files import write_after_conv


def test_a_description_tells_windows_apart():
    assert describe(helper.make_node("Relu", ["a"], ["b"])) == "Relu"
    assert describe(helper.make_node("Conv", ["a", "w"], ["b"], kernel_shape=[1, 7], strides=[1, 1])) == "Conv 1x7"
    node = helper.make_node("Conv", ["a", "w"], ["b"], kernel_shape=[3, 3], strides=[2, 1], dilations=[2, 2], group=4)
    assert describe(node) == "Conv 3x3 strides 2x1 dilations 2x2"


def test_only_constants_on_the_axis_of_the_channels_are_cut(tmp_path):
    """8 channels of 4x8 positions: a factor for each column has eight values, too."""
    nodes = [
        helper.make_node("Mul", ["features", "by_column"], ["a"]),
        helper.make_node("Mul", ["a", "by_channel"], ["b"]),
        helper.make_node("Add", ["b", "everywhere"], ["logits"]),
    ]
    constants = {
        "by_column": np.ones((1, 1, 1, 8), np.float32),
        "by_channel": np.ones((8, 1, 1), np.float32),
        "everywhere": np.ones((1, 8, 8, 8), np.float32),
    }
    skeleton = Skeleton(write_after_conv(tmp_path, nodes, constants, [1, 8, 8, 8], size=8), {"first": (8, 3)})
    resized = skeleton.resized({"first": Keep(out=(1, 4, 7))})
    shapes = {tensor.name: tuple(tensor.dims) for tensor in resized.graph.initializer}
    assert shapes == {
        "first.weight": (3, 3, 1, 1),
        "by_column": (1, 1, 1, 8),
        "by_channel": (3, 1, 1),
        "everywhere": (1, 3, 8, 8),
    }


AXES = np.array([1])
UNKNOWN = {
    "Transpose": ([helper.make_node("Transpose", ["features"], ["logits"], perm=[0, 2, 1, 3])], {}, [1, 8, 8, 8]),
    "Split": ([helper.make_node("Split", ["features"], ["logits", "rest"], axis=1, num_outputs=2)], {}, [1, 4, 8, 8]),
    # Over channels, of which there are as many as rows.
    "ReduceMean": ([helper.make_node("ReduceMean", ["features", "axes"], ["logits"], keepdims=0)], {}, [1, 8, 8]),
    "Squeeze": (
        [
            helper.make_node("ReduceMax", ["features", "rows"], ["column"]),
            helper.make_node("Unsqueeze", ["column", "axes"], ["wrong"]),
            helper.make_node("Squeeze", ["wrong", "axes"], ["logits"]),
        ],
        {"rows": np.array([2])},
        [1, 8, 1, 8],
    ),
    "Pad": (
        [helper.make_node("Pad", ["features", "pads"], ["logits"])],
        {"pads": np.array([0, 2] + [0] * 6)},
        [1, 10, 8, 8],
    ),
    "Concat": ([helper.make_node("Concat", ["features", "features"], ["logits"], axis=2)], {}, [1, 8, 16, 8]),
    "Reshape": (
        [helper.make_node("Reshape", ["features", "shape"], ["logits"])],
        {"shape": np.array([1, 4, 16, 8])},
        [1, 4, 16, 8],
    ),
    "Expand": (
        [helper.make_node("Expand", ["features", "shape"], ["logits"])],
        {"shape": np.array([2, 8, 8, 8])},
        [2, 8, 8, 8],
    ),
    "Flatten": ([helper.make_node("Flatten", ["features"], ["logits"], axis=2)], {}, [8, 64]),
}


@pytest.mark.parametrize("operator", UNKNOWN)
def test_what_does_not_treat_channels_alike_is_refused_by_name(tmp_path, operator):
    nodes, constants, logits = UNKNOWN[operator]
    used = {name for node in nodes for name in node.input}
    proto = write_after_conv(tmp_path, nodes, constants | ({"axes": AXES} if "axes" in used else {}), logits, size=8)
    named = "Unsqueeze" if operator == "Squeeze" else operator
    with pytest.raises(ModelError, match=f"holds a {named} behind first, whose shapes") as caught:
        Skeleton(proto, {"first": (8, 3)})
    assert "%flops" in caught.value.hint


def test_a_shape_that_is_computed_is_refused(tmp_path):
    nodes = [
        helper.make_node("Shape", ["features"], ["shape"]),
        helper.make_node("Reshape", ["features", "shape"], ["logits"]),
    ]
    with pytest.raises(ModelError, match="holds a Shape behind first"):
        Skeleton(write_after_conv(tmp_path, nodes, {}, [1, 8, 4, 4]), {"first": (8, 3)})
