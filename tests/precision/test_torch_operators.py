"""Operators in PyTorch against ONNX Runtime: one node, random values."""

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from catro_deploy.precision.torch_operators import OPERATORS, compute

X = np.random.default_rng(0).standard_normal((2, 4, 7, 6)).astype(np.float32)
FLAT = X.reshape(2, -1)
LINE = np.random.default_rng(1).standard_normal(168).astype(np.float32)
SQUARE = np.random.default_rng(2).standard_normal((168, 168)).astype(np.float32)
FOUR = LINE[:4]
KERNEL = SQUARE[:6, :18].reshape(6, 2, 3, 3)

CASES = {
    "Add": [("Add", [X, X[:, :1]], {})],
    "AveragePool": [
        ("AveragePool", [X], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("AveragePool", [X], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", [X], {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1], "count_include_pad": 1}),
    ],
    "BatchNormalization": [("BatchNormalization", [X, FOUR, FOUR, FOUR, FOUR**2], {"epsilon": 1e-3})],
    "Clip": [("Clip", [X, np.float32(0), np.float32(1)], {}), ("Clip", [X, None, np.float32(1)], {})],
    "Concat": [("Concat", [X, X[:, :2]], {"axis": 1})],
    "Conv": [
        ("Conv", [X, KERNEL, LINE[:6]], {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 0]}),
        ("Conv", [X, KERNEL], {"group": 2, "pads": [0, 1, 1, 2], "dilations": [2, 1]}),
    ],
    "Div": [("Div", [X, np.float32(3)], {})],
    "Erf": [("Erf", [X], {})],
    "Flatten": [("Flatten", [X], {}), ("Flatten", [X], {"axis": 2})],
    "Gemm": [
        ("Gemm", [FLAT, SQUARE, LINE], {"transB": 1}),
        ("Gemm", [FLAT.T.copy(), SQUARE], {"transA": 1, "alpha": 0.5}),
    ],
    "GlobalAveragePool": [("GlobalAveragePool", [X], {})],
    "HardSigmoid": [("HardSigmoid", [X], {}), ("HardSigmoid", [X], {"alpha": 0.3, "beta": 0.4})],
    "HardSwish": [("HardSwish", [X], {})],
    "Identity": [("Identity", [X], {})],
    "LayerNormalization": [("LayerNormalization", [FLAT, LINE, LINE], {"axis": -1, "epsilon": 1e-3})],
    "LeakyRelu": [("LeakyRelu", [X], {"alpha": 0.2})],
    "MatMul": [("MatMul", [FLAT, SQUARE], {})],
    "MaxPool": [
        ("MaxPool", [X], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("MaxPool", [X], {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 0]}),
    ],
    "Mul": [("Mul", [X, X[:, :, :1, :1]], {})],
    "PRelu": [("PRelu", [X, FOUR.reshape(4, 1, 1)], {})],
    "Pad": [("Pad", [X, [0, 0, 1, 2, 0, 1, 0, 3], np.float32(0.5)], {}), ("Pad", [X, [0, 0, 1, 1, 0, 0, 1, 1]], {})],
    "ReduceMean": [("ReduceMean", [X, [2, 3]], {"keepdims": 0}), ("ReduceMean", [X, [-1]], {})],
    "ReduceSum": [("ReduceSum", [X, [1]], {})],
    "Relu": [("Relu", [X], {})],
    "Reshape": [("Reshape", [X, [0, -1]], {}), ("Reshape", [X, [2, 2, 2, 7, 6]], {})],
    "Sigmoid": [("Sigmoid", [X], {})],
    "Slice": [("Slice", [X, [1, 0], [4, 100], [1, 3], [2, 1]], {}), ("Slice", [X, [-2], [-1], [2]], {})],
    "Softmax": [("Softmax", [X], {"axis": 1})],
    "Split": [("Split", [X, [1, 3]], {"axis": 1}), ("Split", [X], {"axis": 1, "num_outputs": 2})],
    "Squeeze": [("Squeeze", [X[:, :, :1, :1], [2, 3]], {})],
    "Sub": [("Sub", [X, X[:1]], {})],
    "Transpose": [("Transpose", [X], {"perm": [0, 2, 3, 1]})],
    "Unsqueeze": [("Unsqueeze", [X, [1, -1]], {})],
}


def by_onnxruntime(operator, inputs, attributes):
    names, constants = [], []
    for place, value in enumerate(inputs):
        names.append("" if value is None else f"input_{place}")
        if value is not None:
            array = np.array(value, np.int64) if isinstance(value, list) else np.asarray(value)
            constants.append(numpy_helper.from_array(array, names[-1]))
    count = 2 if operator == "Split" else 1
    outputs = [helper.make_tensor_value_info(f"output_{place}", TensorProto.FLOAT, None) for place in range(count)]
    node = helper.make_node(operator, names, [output.name for output in outputs], **attributes)
    graph = helper.make_graph([node], "one", [], outputs, constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {})


def test_every_operator_has_a_case():
    assert set(CASES) == set(OPERATORS)


@pytest.mark.parametrize(("operator", "inputs", "attributes"), [case for cases in CASES.values() for case in cases])
def test_an_operator_computes_what_onnxruntime_does(operator, inputs, attributes):
    given = [torch.tensor(one) if isinstance(one, np.ndarray | np.generic) else one for one in inputs]
    found = compute(operator, given, attributes)
    found = found if isinstance(found, tuple) else (found,)
    for one, expected in zip(found, by_onnxruntime(operator, inputs, attributes), strict=True):
        np.testing.assert_allclose(one.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_one_image_in_the_file_are_as_many_as_there_are():
    assert compute("Reshape", [torch.tensor(X), [1, -1]], {}).shape == (2, 168)
