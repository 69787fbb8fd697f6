"""Networks converted to OpenVINO IR."""

import json
import sys

import numpy as np
import pytest

from catro_deploy.errors import NumericsError, RuntimeMissingError
from catro_deploy.graph.onnx import ir
from catro_deploy.graph.onnx.ir import ir_of, model_info, write_ir
from catro_deploy.runtimes import check_metadata, open_runner
from catro_deploy.runtimes.ov_library import core
from tests.onnx_files import write_conv_chain

METADATA = {
    "network": "pruned",
    "classes": json.dumps(["speed limit 20", "stop", "\u00e4"]),
    "mean": "[0.5, 0.25, 0.0]",
    "std": "[0.2, 0.2, 1.0]",
    "pixels": "float32; (pixel / 255 - mean) / std",
    "layout": "NCHW",
    "plan_sha256": "12ab",
}


def test_the_ir_computes_the_same_and_says_what_the_onnx_file_says(tmp_path):
    file = write_conv_chain(tmp_path / "pruned.int8.onnx", layers=3, channels=16, metadata=METADATA)
    graph, weights = write_ir(file)
    assert (graph.name, weights.name) == ("pruned.int8.xml", "pruned.int8.bin")
    assert {path.name for path in tmp_path.iterdir()} == {file.name, graph.name, weights.name}
    assert ir_of(file) == (graph, weights)
    given = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    with open_runner("openvino", file, 1) as expected, open_runner("openvino", graph, 1) as found:
        np.testing.assert_array_equal(found.infer(given), expected.infer(given))
        assert found.metadata == expected.metadata == METADATA
        check_metadata(found, {"plan_sha256": "12ab"})


def test_weights_keep_their_precision(tmp_path):
    file = write_conv_chain(tmp_path / "m.onnx", layers=4, channels=32, metadata=METADATA)
    _, weights = write_ir(file)
    floats = 32 * 3 * 9 + 3 * 32 * 32 * 9
    assert weights.stat().st_size >= 4 * floats


def test_class_names_and_preprocessing_are_in_the_words_of_the_model_api(tmp_path):
    graph, _ = write_ir(write_conv_chain(tmp_path / "m.onnx", metadata=METADATA))
    network = core().read_model(str(graph))
    found = {key: value.astype(str) for key, value in network.rt_info["model_info"].items()}
    assert found == {
        "model_type": "Classification",
        "labels": "speed_limit_20 stop \u00e4",
        "resize_type": "standard",
        "mean_values": "127.5 63.75 0",
        "scale_values": "51 51 255",
    }
    assert network.inputs[0].get_node().layout.to_string() == "[N,C,H,W]"


def test_what_the_network_does_itself_is_not_asked_of_the_user():
    inside = METADATA | {"pixels": "uint8; normalised inside the network: (pixel / 255 - mean) / std"}
    assert "mean_values" not in model_info(inside)
    assert model_info({"network": "original"}) == {}


def test_a_file_that_computes_something_else_does_not_take_its_place(tmp_path, monkeypatch):
    file = write_conv_chain(tmp_path / "m.onnx")
    other = write_conv_chain(tmp_path / "other.onnx", layers=2)
    read = core().read_model

    class Wrong:
        """Reads another network."""

        def read_model(self, path: str) -> object:
            return read(str(other))

    monkeypatch.setattr(ir, "core", Wrong)
    with pytest.raises(NumericsError, match=r"\bm\.xml\b"):
        write_ir(file)
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "other.onnx"}


def test_without_openvino_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(RuntimeMissingError) as caught:
        write_ir(write_conv_chain(tmp_path / "m.onnx"))
    assert "catro-deploy[openvino]" in caught.value.hint
