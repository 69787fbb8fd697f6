"""What the agent finds on a device, and the commands that it names."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from catro_deploy.agent import doctor
from catro_deploy.agent.agent import run
from catro_deploy.agent.device import JetsonFacts
from catro_deploy.agent.jobs import BenchJob, DoctorJob, FactsJob, Job, Workspace
from catro_deploy.agent.process import job_events
from catro_deploy.agent.results import DoctorResult, Finding, Mode
from catro_deploy.agent.wire import read, to_json
from tests.agent.measured import DEVICE
from tests.agent.test_agent import PROTOCOL

JETSON = JetsonFacts("36.4.7", "15W", (306.0, 624.75), None)
ORIN = replace(DEVICE, device="NVIDIA Jetson Orin Nano", cpu_model=None, cores=6, jetson=JETSON)
NOWHERE = Workspace("", "")


def findings(runtime: str = "onnxruntime") -> dict[str, Finding]:
    return {one.name: one for one in run(DoctorJob(runtime), NOWHERE, lambda _: None).findings}


def test_this_machine_can_do_its_work():
    found = findings()
    assert all(found[name].state == "works" for name in ("python", "processor", "numpy", "onnxruntime"))
    assert not [finding for finding in found.values() if finding.needed and finding.state != "works"]


def test_openvino_is_needed_where_it_is_the_runtime_and_a_network_is_run():
    assert not findings()["openvino"].needed
    found = findings("openvino")
    assert (found["openvino"].state, found["openvino"].needed) == ("works", True)
    gpu = findings("openvino-gpu")["openvino-gpu"]
    assert gpu.state == "works" or "finds no GPU here" in gpu.detail


def test_what_the_target_needs_counts():
    assert findings("onnxruntime")["onnxruntime"].needed
    assert not findings("tensorrt")["onnxruntime"].needed
    assert findings("tensorrt")["tensorrt"].needed


def test_onnx_runtime_on_a_gpu_is_onnx_runtime():
    assert findings("onnxruntime-cuda")["onnxruntime"].needed


def test_an_old_python_does_for_onnx_runtime_and_not_for_tensorrt(monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 8, 10))
    assert findings()["python"].state == "works"
    found = findings("tensorrt")["python"]
    assert found.state == "broken"
    assert "tensorrt needs 3.10 or later" in found.detail
    assert "--python PATH" in found.remedy


@pytest.mark.usefixtures("tensorrt")
def test_the_gpu_that_cuda_finds(monkeypatch):
    def examined() -> dict[str, Finding]:
        *_, last = job_events(DoctorJob("tensorrt"), NOWHERE)
        return {one.name: one for one in read(DoctorResult, last["result"]).findings}

    found = examined()
    assert found["CUDA"].detail == "Double of a GPU, compute capability 8.7, 8 SMs"
    assert found["tensorrt"].state == "works"
    monkeypatch.setenv("CATRO_DOUBLE_NO_GPU", "1")
    found = examined()["CUDA"]
    assert (found.state, found.needed) == ("broken", True)
    assert "finds no GPU" in found.detail


def test_telemetry_is_off_unless_the_user_decided_otherwise(monkeypatch):
    found = findings()["no telemetry"]
    assert (found.state, found.needed) == ("works", False)
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    found = findings()["no telemetry"]
    assert (found.state, found.remedy) == ("missing", "unset ORT_DISABLE_TELEMETRY")
    assert found.detail.endswith("ORT_DISABLE_TELEMETRY=0")


def test_a_jetson_gets_its_own_commands(monkeypatch):
    monkeypatch.setattr(doctor, "device_facts", lambda: ORIN)
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    found = findings("tensorrt")
    assert found["Jetson"].detail == "L4T 36.4.7, power mode 15W"
    assert (found["clocks"].state, found["clocks"].remedy) == (
        "missing", "fix it while you measure: sudo jetson_clocks",
    )  # fmt: skip
    assert found["tensorrt"].state != "works"
    assert found["tensorrt"].remedy == "sudo apt-get install python3-libnvinfer"


@pytest.mark.parametrize(
    ("clocks", "state", "said"),
    [((624.75, 624.75), "works", "is fixed at 624.75 MHz"), (None, "missing", "cannot be read")],
)
def test_clocks_that_are_fixed_and_clocks_that_are_unknown(monkeypatch, clocks, state, said):
    monkeypatch.setattr(
        doctor, "device_facts", lambda: replace(ORIN, jetson=replace(JETSON, gpu_clock_range_mhz=clocks))
    )
    found = findings()["clocks"]
    assert found.state == state
    assert said in found.detail


BARE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from catro_deploy.agent.agent import run
from catro_deploy.agent.jobs import Job, Workspace
from catro_deploy.agent.wire import read, to_json
from catro_deploy.errors import CatroError
try:
    print(json.dumps(to_json(run(read(Job, json.loads(sys.argv[2])), Workspace("", ""), lambda event: None))))
except CatroError as error:
    print(type(error).__name__, error.problem, error.hint)
"""


def bare(job: Job) -> str:
    """The output of the agent in a Python without any package."""
    package = str(doctor.__file__).partition("/catro_deploy/")[0]
    command = [sys.executable, "-I", "-S", "-c", BARE, package, json.dumps(to_json(job))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_python_without_anything_is_examined_too():
    said = bare(DoctorJob("onnxruntime"))
    assert '"name": "numpy", "state": "missing"' in said
    assert '"remedy": "python3 -m pip install onnxruntime"' in said
    assert '"remedy": "optional: python3 -m pip install tensorrt"' in said


def test_without_numpy_cuda_is_not_tried():
    assert '"name": "CUDA", "state": "missing"' in bare(DoctorJob("tensorrt"))


@pytest.mark.parametrize(
    "job",
    [FactsJob("onnxruntime"), BenchJob("onnxruntime", 1, None, {}, (Mode(1),), PROTOCOL)],
    ids=lambda job: job.NAME,
)
def test_other_jobs_say_that_numpy_is_missing(job):
    assert bare(job).startswith("RuntimeMissingError The device's Python has no numpy.")
