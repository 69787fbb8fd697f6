"""What the agent finds on a device, and the commands that it names."""

import subprocess
import sys
from typing import Any

import pytest

from catro_deploy.agent import doctor
from catro_deploy.agent.agent import run
from catro_deploy.agent.process import run_job

ORIN = {
    "device": "NVIDIA Jetson Orin Nano", "cpu_model": None, "cores": 6, "l4t": "36.4.7", "power_mode": "15W",
    "gpu_clock_range_mhz": (306.0, 624.75),
}  # fmt: skip


def findings(runtime: str = "onnxruntime") -> dict[str, dict[str, Any]]:
    result = run({"job": "doctor", "runtime": runtime}, lambda _: None)
    return {finding["name"]: finding for finding in result["findings"]}


def test_this_machine_can_do_its_work():
    found = findings()
    assert all(found[name]["state"] == "works" for name in ("python", "processor", "numpy", "onnxruntime"))
    assert not [finding for finding in found.values() if finding["needed"] and finding["state"] != "works"]


def test_what_the_target_needs_counts():
    assert findings("onnxruntime")["onnxruntime"]["needed"]
    assert not findings("tensorrt")["onnxruntime"]["needed"]
    assert findings("tensorrt")["tensorrt"]["needed"]


def test_onnx_runtime_on_a_gpu_is_onnx_runtime():
    assert findings("onnxruntime-cuda")["onnxruntime"]["needed"]


def test_an_old_python_does_for_onnx_runtime_and_not_for_tensorrt(monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 8, 10))
    assert findings()["python"]["state"] == "works"
    found = findings("tensorrt")["python"]
    assert found["state"] == "broken"
    assert "tensorrt needs 3.10 or later" in found["detail"]
    assert "--python PATH" in found["remedy"]


@pytest.mark.usefixtures("tensorrt")
def test_the_gpu_that_cuda_finds(monkeypatch):
    def examined() -> dict[str, dict[str, Any]]:
        *_, last = run_job({"job": "doctor", "runtime": "tensorrt"})
        return {finding["name"]: finding for finding in last["result"]["findings"]}

    found = examined()
    assert found["CUDA"]["detail"] == "Double of a GPU, compute capability 8.7, 8 SMs"
    assert found["tensorrt"]["state"] == "works"
    monkeypatch.setenv("CATRO_DOUBLE_NO_GPU", "1")
    found = examined()["CUDA"]
    assert (found["state"], found["needed"]) == ("broken", True)
    assert "finds no GPU" in found["detail"]


def test_a_jetson_is_told_its_own_commands(monkeypatch):
    monkeypatch.setattr(doctor, "device_facts", lambda: ORIN)
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    found = findings("tensorrt")
    assert found["Jetson"]["detail"] == "L4T 36.4.7, power mode 15W"
    assert (found["clocks"]["state"], found["clocks"]["remedy"]) == (
        "missing", "fix it while you measure: sudo jetson_clocks",
    )  # fmt: skip
    assert found["tensorrt"]["state"] != "works"
    assert found["tensorrt"]["remedy"] == "sudo apt-get install python3-libnvinfer"


@pytest.mark.parametrize(
    ("clocks", "state", "said"), [((624.75, 624.75), "works", "is fixed at 624.75 MHz"), (None, "missing", "root only")]
)
def test_clocks_that_are_fixed_and_clocks_that_nobody_tells(monkeypatch, clocks, state, said):
    monkeypatch.setattr(doctor, "device_facts", lambda: {**ORIN, "gpu_clock_range_mhz": clocks})
    found = findings()["clocks"]
    assert found["state"] == state
    assert said in found["detail"]


BARE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from catro_deploy.agent.agent import run
from catro_deploy.errors import CatroError
try:
    print(json.dumps(run(json.loads(sys.argv[2]), lambda event: None)))
except CatroError as error:
    print(type(error).__name__, error.problem, error.hint)
"""


def bare(job: str) -> str:
    """What the agent says in a Python without any package."""
    package = str(doctor.__file__).partition("/catro_deploy/")[0]
    command = [sys.executable, "-I", "-S", "-c", BARE, package, job]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_python_without_anything_is_examined_too():
    said = bare('{"job": "doctor", "runtime": "onnxruntime"}')
    assert '"name": "numpy", "state": "missing"' in said
    assert "python3 -m pip install onnxruntime" in said


def test_without_numpy_cuda_is_not_tried():
    assert '"name": "CUDA", "state": "missing"' in bare('{"job": "doctor", "runtime": "tensorrt"}')


@pytest.mark.parametrize("job", ['{"job": "facts", "runtime": "onnxruntime"}', '{"job": "bench"}'])
def test_other_jobs_say_that_numpy_is_missing(job):
    assert bare(job).startswith("RuntimeMissingError The device's Python has no numpy.")
