"""The same networks in ONNX Runtime and OpenVINO, with real inferences."""

import pytest

from catro_deploy.agent.agent import run
from catro_deploy.agent.events import Event, Progress
from catro_deploy.agent.jobs import CompareJob, ModelFile
from catro_deploy.errors import ModelError, RuntimeMissingError
from tests.agent.test_agent import PROTOCOL, workspace
from tests.onnx_files import write_conv_chain

LARGE, SMALL = {"layers": 8, "channels": 32, "size": 32}, {"layers": 1, "channels": 32, "size": 32}


def job_for(folder, *runtimes: str, metadata: dict[str, str] | None = None) -> CompareJob:
    files = {"large": LARGE, "small": SMALL}
    models = {
        name: ModelFile(write_conv_chain(folder / f"{name}.onnx", **size).name, metadata or {})
        for name, size in files.items()
    }
    return CompareJob("onnxruntime", runtimes, models, 1, 1, PROTOCOL)


def test_each_network_is_timed_by_each_runtime_and_the_first_is_the_reference(tmp_path):
    events: list[Event] = []
    found = run(job_for(tmp_path, "openvino", "onnxruntime"), workspace(tmp_path), events.append)
    pairs = [("openvino", "large"), ("openvino", "small"), ("onnxruntime", "large"), ("onnxruntime", "small")]
    assert [(one.runtime, one.network) for one in found.timings] == pairs
    assert (found.timings[0].speedup.median, found.timings[0].speedup.ci95) == (1, (1, 1))
    assert all(one.timing.n >= PROTOCOL.min_samples for one in found.timings)
    for one in found.timings:
        expected = found.timings[0].timing.p50_us / one.timing.p50_us
        assert one.speedup.median == pytest.approx(expected)
    assert found.timings[1].speedup.ci95[0] > 1.5  # an eighth of the work, whatever the runtime
    assert set(found.versions) == {"openvino", "onnxruntime"}
    assert found.missing == {}
    assert {type(event) for event in events} == {Progress}


def test_a_missing_runtime_is_left_out_and_reported(tmp_path):
    found = run(job_for(tmp_path, "openvino-npu", "onnxruntime"), workspace(tmp_path), lambda _: None)
    if "openvino-npu" in found.versions:
        pytest.skip("this machine has one")
    assert list(found.versions) == ["onnxruntime"]
    assert "finds no NPU" in found.missing["openvino-npu"]
    assert found.timings[0].speedup.median == 1


def test_without_any_runtime_there_is_nothing_to_compare(tmp_path):
    with pytest.raises(RuntimeMissingError, match="CUDAExecutionProvider"):
        run(job_for(tmp_path, "onnxruntime-cuda"), workspace(tmp_path), lambda _: None)


def test_networks_are_those_that_were_meant(tmp_path):
    job = job_for(tmp_path, "onnxruntime", metadata={"plan_sha256": "another"})
    with pytest.raises(ModelError, match=r"plan_sha256.*'another'"):
        run(job, workspace(tmp_path), lambda _: None)
