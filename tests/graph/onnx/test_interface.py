"""Preprocessing and softmax inside an ONNX network, against the same done outside it."""

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from catro_deploy.data.pixels import normalise
from catro_deploy.errors import NumericsError
from catro_deploy.graph.onnx import interface as module
from catro_deploy.graph.onnx.interface import (
    PLAIN,
    Interface,
    plain_copy,
    with_interface,
    without_interface,
    write_interface,
)
from tests.onnx_files import write_conv_chain

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ALL = [
    Interface(*ways, MEAN, STD, top_k)
    for *ways, top_k in itertools.product(("float", "uint8"), ("nchw", "nhwc"), ("logits", "softmax"), (0, 3))
]


def pixels(count: int = 1) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 3, 8, 8), dtype=np.uint8)


def all_computed(proto: onnx.ModelProto, images: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"image": np.ascontiguousarray(images)})


def computed(proto: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    return all_computed(proto, images)[0]


@pytest.mark.parametrize("interface", ALL, ids=lambda one: one.words)
@pytest.mark.parametrize("batch", [1, "batch"])
def test_every_interface_computes_the_same(tmp_path, interface, batch):
    proto = onnx.load(write_conv_chain(tmp_path / "plain.onnx", layers=2, batch=batch, metadata={"network": "pruned"}))
    raw = pixels(1 if batch == 1 else 5)
    normalised = normalise(torch.from_numpy(raw), MEAN, STD).numpy()
    expected = torch.from_numpy(computed(proto, normalised))
    expected = expected.softmax(1).numpy() if interface.output == "softmax" else expected.numpy()

    found = with_interface(proto, interface)
    onnx.checker.check_model(found, full_check=True)
    images = raw if interface.input == "uint8" else normalised
    images = images.transpose(0, 2, 3, 1) if interface.layout == "nhwc" else images
    np.testing.assert_allclose(computed(found, images), expected, rtol=1e-4, atol=1e-5)
    assert found.graph.output[0].name == ("probabilities" if interface.output == "softmax" else "logits")
    assert found.metadata_props == proto.metadata_props


@pytest.mark.parametrize("interface", ALL, ids=lambda one: one.words)
def test_it_can_be_taken_off_again(tmp_path, interface):
    proto = onnx.load(write_conv_chain(tmp_path / "plain.onnx", layers=2, batch="batch"))
    assert without_interface(with_interface(proto, interface)) == proto


@pytest.mark.parametrize("batch", [1, "batch"])
def test_the_largest_come_with_their_classes_largest_first(tmp_path, batch):
    proto = onnx.load(write_conv_chain(tmp_path / "plain.onnx", channels=8, batch=batch))
    images = np.random.default_rng(1).standard_normal((1 if batch == 1 else 5, 3, 8, 8)).astype(np.float32)
    found = with_interface(proto, Interface(output="softmax", top_k=3))
    probabilities, values, classes = all_computed(found, images)
    assert [output.name for output in found.graph.output] == ["probabilities", "top_values", "top_classes"]
    assert (values.shape, classes.dtype) == ((len(images), 3), np.int64)
    for row, largest, indices in zip(probabilities, values, classes, strict=True):
        assert indices.tolist() == sorted(range(8), key=lambda index: -row[index])[:3]
        assert largest.tolist() == row[indices].tolist()


def test_there_are_no_more_of_the_largest_than_classes(tmp_path):
    file = write_conv_chain(tmp_path / "pruned.onnx", channels=4)
    write_interface(file, Interface(top_k=10))
    assert [size.dim_value for size in onnx.load(file).graph.output[2].type.tensor_type.shape.dim] == [1, 4]


def test_top_classes_that_are_others_are_not_written(tmp_path, monkeypatch):
    file = write_conv_chain(tmp_path / "pruned.onnx", channels=4)
    before = file.read_bytes()
    made = module._top_node

    def smallest(name):
        node = made(name)
        next(one for one in node.attribute if one.name == "largest").i = 0
        return node

    monkeypatch.setattr(module, "_top_node", smallest)
    with pytest.raises(NumericsError, match=r"pruned\.onnx.*\btop 2\b"):
        write_interface(file, Interface(top_k=2))
    assert file.read_bytes() == before


def test_pixels_cost_two_operators_and_a_transpose(tmp_path):
    """Only a Cast reads uint8, since TensorRT accepts it nowhere else."""
    proto = onnx.load(write_conv_chain(tmp_path / "plain.onnx"))
    found = with_interface(proto, Interface("uint8", "nhwc", "softmax", MEAN, STD))
    added = [node.op_type for node in found.graph.node if node.op_type not in ("Conv", "GlobalAveragePool", "Flatten")]
    assert added == ["Cast", "Transpose", "BatchNormalization", "Softmax"]
    assert [node.op_type for node in found.graph.node if "image" in node.input] == ["Cast"]


def test_a_file_gets_its_interface_and_a_copy_without_it(tmp_path):
    file = write_conv_chain(tmp_path / "pruned.onnx")
    before = file.read_bytes()
    write_interface(file, PLAIN)
    assert file.read_bytes() == before
    write_interface(file, Interface("uint8", mean=MEAN, std=STD))
    assert file.read_bytes() != before
    with plain_copy(file) as plain:
        assert plain.name == "pruned.onnx"
        assert onnx.load(plain) == onnx.load_from_string(before)


def test_another_normalisation_is_not_written(tmp_path, monkeypatch):
    file = write_conv_chain(tmp_path / "pruned.onnx")
    before = file.read_bytes()
    monkeypatch.setattr(module, "LARGEST_PIXEL", 256)
    with pytest.raises(NumericsError, match=r"pruned\.onnx.* pixels"):
        write_interface(file, Interface("uint8", mean=MEAN, std=STD))
    assert file.read_bytes() == before
