"""Networks after a convolution of 8 channels, and their constants when only some of the channels are kept."""

from collections.abc import Mapping

import numpy as np
from onnx import helper

REST = np.iinfo(np.int64).max
Constants = Mapping[str, np.ndarray]


def whole_numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


SHUFFLE = [
    helper.make_node("Reshape", ["features", "split"], ["halves"]),
    helper.make_node("Transpose", ["halves"], ["turned"], perm=[0, 2, 1, 3, 4]),
    helper.make_node("Reshape", ["turned", "joined"], ["logits"]),
]
SHUFFLED = {"split": whole_numbers(1, 2, 4, 8, 8), "joined": whole_numbers(1, 8, 8, 8)}
BY_SIZES = [
    helper.make_node("Split", ["features", "sizes"], ["a", "b"], axis=1),
    helper.make_node("Concat", ["b", "a", "more"], ["logits"], axis=-3),
]
IN_HALVES = [
    helper.make_node("Split", ["features"], ["a", "b"], axis=1, num_outputs=2),
    helper.make_node("Mul", ["a", "b"], ["logits"]),
]
GROUP_NORM = [
    helper.make_node("Reshape", ["features", "by_group"], ["groups"]),
    helper.make_node("InstanceNormalization", ["groups", "scale", "bias"], ["normal"]),
    helper.make_node("Reshape", ["normal", "back"], ["logits"]),
]
SLICE = [helper.make_node("Slice", ["features", "starts", "ends", "axes"], ["logits"])]
FOLLOWED = {
    "group normalisation": (
        GROUP_NORM,
        {"by_group": whole_numbers(0, 4, -1), "scale": ones(4), "bias": ones(4), "back": whole_numbers(1, 8, 8, 8)},
        [1, 8, 8, 8],
        (2, 3, 6, 7),
        (1, 4, 8, 8),
        {"by_group": [0, 2, -1], "scale": (2,), "bias": (2,), "back": [1, 4, 8, 8]},
    ),
    "channel shuffle": (
        SHUFFLE,
        SHUFFLED,
        [1, 8, 8, 8],
        (1, 2, 3, 5, 6, 7),
        (1, 6, 8, 8),
        {"split": [1, 2, 3, 8, 8], "joined": [1, 6, 8, 8]},
    ),
    "split by sizes": (
        BY_SIZES,
        {"sizes": whole_numbers(3, 5), "more": ones(1, 2, 8, 8)},
        [1, 10, 8, 8],
        (1, 3, 4, 7),
        (1, 6, 8, 8),
        {"sizes": [1, 3], "more": (1, 2, 8, 8)},
    ),
    "split in halves": (IN_HALVES, {}, [1, 4, 8, 8], (0, 3, 4, 7), (1, 2, 8, 8), {}),
    "slice": (
        SLICE,
        {"starts": whole_numbers(2, 1), "ends": whole_numbers(6, REST), "axes": whole_numbers(1, 3)},
        [1, 4, 8, 7],
        (0, 1, 4, 5, 7),
        (1, 2, 8, 7),
        {"starts": [2, 1], "ends": [4, REST], "axes": [1, 3]},
    ),
    "slice of the rest": (
        [helper.make_node("Slice", ["features", "starts", "ends", "axes", "steps"], ["logits"])],
        {
            "starts": whole_numbers(-3, 0),
            "ends": whole_numbers(REST, 8),
            "axes": whole_numbers(1, 2),
            "steps": whole_numbers(1, 2),
        },
        [1, 3, 4, 8],
        (0, 1, 6, 7),
        (1, 2, 4, 8),
        {"starts": [2, 0], "ends": [REST, 8], "axes": [1, 2], "steps": [1, 2]},
    ),
    "pixel shuffle": (
        [helper.make_node("DepthToSpace", ["features"], ["logits"], blocksize=2, mode="CRD")],
        {},
        [1, 2, 16, 16],
        (4, 5, 6, 7),
        (1, 1, 16, 16),
        {},
    ),
    "depth to space": (
        [helper.make_node("DepthToSpace", ["features"], ["logits"], blocksize=2, mode="DCR")],
        {},
        [1, 2, 16, 16],
        (1, 3, 5, 7),
        (1, 1, 16, 16),
        {},
    ),
    "space to depth and back": (
        [
            helper.make_node("SpaceToDepth", ["features"], ["deep"], blocksize=2),
            helper.make_node("DepthToSpace", ["deep"], ["logits"], blocksize=2),
        ],
        {},
        [1, 8, 8, 8],
        (0, 5, 6),
        (1, 3, 8, 8),
        {},
    ),
    "mean over channels": (
        [
            helper.make_node("ReduceMean", ["features", "axes"], ["map"]),
            helper.make_node("Mul", ["features", "map"], ["logits"]),
        ],
        {"axes": whole_numbers(1)},
        [1, 8, 8, 8],
        (0, 5),
        (1, 2, 8, 8),
        {"axes": [1]},
    ),
    "mean over all": (
        [helper.make_node("ReduceMean", ["features"], ["logits"], keepdims=0)],
        {},
        [],
        (0, 5),
        (),
        {},
    ),
    "axes away and back": (
        [
            helper.make_node("ReduceMax", ["features", "places"], ["vector"], keepdims=0),
            helper.make_node("Unsqueeze", ["vector", "places"], ["wide"]),
            helper.make_node("Expand", ["wide", "shape"], ["logits"]),
        ],
        {"places": whole_numbers(2, 3), "shape": whole_numbers(1, 8, 4, 4)},
        [1, 8, 4, 4],
        (0, 1, 5),
        (1, 3, 4, 4),
        {"places": [2, 3], "shape": [1, 3, 4, 4]},
    ),
    "flattened map": (
        [helper.make_node("Flatten", ["features"], ["flat"]), helper.make_node("Add", ["flat", "bias"], ["logits"])],
        {"bias": ones(512)},
        [1, 512],
        (0, 6),
        (1, 128),
        {"bias": (128,)},
    ),
    "concatenation of rows": (
        [helper.make_node("Concat", ["features", "below"], ["logits"], axis=2)],
        {"below": ones(1, 8, 2, 8)},
        [1, 8, 10, 8],
        (0, 6, 7),
        (1, 3, 10, 8),
        {"below": (1, 3, 2, 8)},
    ),
    "resizing to a size": (
        [helper.make_node("Resize", ["features", "", "", "sizes"], ["logits"])],
        {"sizes": whole_numbers(1, 8, 4, 4)},
        [1, 8, 4, 4],
        (0, 6, 7),
        (1, 3, 4, 4),
        {"sizes": [1, 3, 4, 4]},
    ),
    "one column": (
        [helper.make_node("Gather", ["features", "column"], ["logits"], axis=-1)],
        {"column": np.int64(3)},
        [1, 8, 8],
        (0, 6, 7),
        (1, 3, 8),
        {"column": 3},
    ),
    "positions, as uneven adaptive pooling takes them": (
        [
            helper.make_node("Transpose", ["features"], ["turned"], perm=[2, 3, 0, 1]),
            helper.make_node("GatherND", ["turned", "positions"], ["taken"]),
            helper.make_node("Transpose", ["taken"], ["logits"], perm=[1, 2, 0]),
        ],
        {"positions": whole_numbers(0, 0, 3, 7, 7, 1).reshape(3, 2)},
        [1, 8, 3],
        (0, 6, 7),
        (1, 3, 3),
        {"positions": [[0, 0], [3, 7], [7, 1]]},
    ),
    "a choice for each channel": (
        [helper.make_node("Where", ["which", "features", "none"], ["logits"])],
        {"which": np.array([True, False] * 4).reshape(8, 1, 1), "none": np.float32(0)},
        [1, 8, 8, 8],
        (0, 1, 2),
        (1, 3, 8, 8),
        {"which": [[[True]], [[False]], [[True]]], "none": ()},
    ),
}


REFUSED = {
    # Different places are kept in the two halves of a shuffle.
    "Reshape": (SHUFFLE, SHUFFLED, [1, 8, 8, 8], (0, 1, 2, 4)),
    "Mul": (IN_HALVES, {}, [1, 4, 8, 8], (0, 1, 4, 6)),
    "Split": (IN_HALVES, {}, [1, 4, 8, 8], (0, 1, 2, 4)),
    "Slice": (
        [helper.make_node("Slice", ["features", "starts", "ends", "axes", "steps"], ["logits"])],
        {"starts": whole_numbers(0), "ends": whole_numbers(8), "axes": whole_numbers(1), "steps": whole_numbers(2)},
        [1, 4, 8, 8],
        (0, 1),
    ),
    "DepthToSpace": (
        [helper.make_node("DepthToSpace", ["features"], ["logits"], blocksize=2, mode="CRD")],
        {},
        [1, 2, 16, 16],
        (0, 1, 4, 5),
    ),
    "Concat": (
        [
            helper.make_node("Transpose", ["features"], ["turned"], perm=[0, 2, 1, 3]),
            helper.make_node("Concat", ["features", "turned"], ["logits"], axis=3),
        ],
        {},
        [1, 8, 8, 16],
        (0, 1),
    ),
    "Pad": (
        [helper.make_node("Pad", ["features", "pads"], ["logits"])],
        {"pads": whole_numbers(0, 2, 0, 0, 0, 0, 0, 0)},
        [1, 10, 8, 8],
        (0, 1),
    ),
    "Gather": (
        [helper.make_node("Gather", ["features", "order"], ["logits"], axis=1)],
        {"order": whole_numbers(7, 3, 1)},
        [1, 3, 8, 8],
        (1, 3),
    ),
    "GatherND": (
        [helper.make_node("GatherND", ["features", "places"], ["logits"])],
        {"places": whole_numbers(0, 7, 0, 3).reshape(2, 2)},
        [2, 8, 8],
        (3, 7),
    ),
    "GatherND of each image": (
        [helper.make_node("GatherND", ["features", "places"], ["logits"], batch_dims=1)],
        {"places": whole_numbers(7).reshape(1, 1)},
        [1, 8, 8],
        (3, 7),
    ),
    "CumSum": (
        [helper.make_node("CumSum", ["features", "axis"], ["logits"])],
        {"axis": np.int64(1)},
        [1, 8, 8, 8],
        (0, 1),
    ),
}
