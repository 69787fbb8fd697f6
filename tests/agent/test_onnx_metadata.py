"""Metadata of ONNX files, checked against the onnx package."""

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from catro_deploy.agent.onnx_metadata import onnx_metadata
from catro_deploy.errors import ModelError


def a_model(metadata: dict[str, str]) -> onnx.ModelProto:
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 4])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph([helper.make_node("Relu", ["image"], ["logits"])], "g", [image], [logits])
    model = helper.make_model(graph)
    helper.set_model_props(model, metadata)
    return model


@given(st.dictionaries(st.text(min_size=1), st.text(max_size=400), max_size=5))
def test_whatever_was_written_is_read(tmp_path_factory, metadata):
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    onnx.save(a_model(metadata), path)
    assert onnx_metadata(path) == metadata


def test_a_file_that_is_cut_off(tmp_path):
    path = tmp_path / "model.onnx"
    whole = a_model({"plan_sha256": "ab" * 32}).SerializeToString()
    path.write_bytes(whole[:-10])
    with pytest.raises(ModelError, match=r"model\.onnx"):
        onnx_metadata(path)


def test_no_file(tmp_path):
    with pytest.raises(ModelError, match=r"none\.onnx"):
        onnx_metadata(tmp_path / "none.onnx")
