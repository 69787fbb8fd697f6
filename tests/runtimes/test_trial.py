"""A runtime that is installed does not necessarily work."""

import base64

import pytest
from onnx import TensorProto, helper

from catro_deploy.agent.jobs import DoctorJob, FactsJob, Workspace
from catro_deploy.agent.process import job_events
from catro_deploy.agent.results import DoctorResult
from catro_deploy.agent.wire import read
from catro_deploy.errors import RuntimeMissingError, UsageError
from catro_deploy.runtimes.trial import MODEL, try_runtime

NOWHERE = Workspace("", "")


def test_the_model_adds_an_image_to_itself():
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("image", "logits")]
    graph = helper.make_graph([helper.make_node("Add", ["image", "image"], ["logits"])], "trial", ends[:1], ends[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    assert base64.b64decode(MODEL) == made.SerializeToString()


def test_onnx_runtime_computes():
    assert try_runtime("onnxruntime")[0].isdigit()


def test_an_unknown_runtime():
    with pytest.raises(UsageError, match="tflite"):
        try_runtime("tflite")


def test_a_provider_that_is_not_there():
    with pytest.raises(RuntimeMissingError, match="CUDAExecutionProvider"):
        try_runtime("onnxruntime-cuda")


def test_the_doctor_runs_a_network_on_the_gpu():
    *_, last = job_events(DoctorJob("onnxruntime-cuda"), NOWHERE)
    found = {one.name: one for one in read(DoctorResult, last["result"]).findings}["onnxruntime-cuda"]
    assert (found.state, found.needed) == ("broken", True)
    assert "onnxruntime-gpu" in found.remedy


@pytest.mark.usefixtures("tensorrt")
def test_facts_of_a_tensorrt_device_are_given_only_if_its_gpu_works(monkeypatch):
    """``catro-deploy device check`` requests them."""
    *_, last = job_events(FactsJob("tensorrt"), NOWHERE)
    assert last["result"]["runtime"].startswith("tensorrt 11.")
    monkeypatch.setenv("CATRO_DOUBLE_NO_GPU", "1")
    with pytest.raises(RuntimeMissingError, match="no GPU"):
        list(job_events(FactsJob("tensorrt"), NOWHERE))
