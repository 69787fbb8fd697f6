"""Parsing trtexec's output, with recorded samples of several versions and short ones of our own; and running it."""

import stat
import sys
from pathlib import Path

import pytest

from catro_deploy.agent.jobs import BenchJob
from catro_deploy.agent.results import Mode, Timing
from catro_deploy.agent.trtexec import compute_times_us, faults, version
from catro_deploy.errors import FaultError
from tests.agent.test_tensorrt import WAYS, done, job_for

RECORD = '{ "startComputeMs" : 16.6, "endComputeMs" : 29.6, "h2dMs" : 0, "computeMs" : 13.0181, "latencyMs" : 13.0181 }'
FAILED = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v101600] [b72] # trtexec --onnx=m.onnx
[04/24/2026-02:26:01] [I] Batch: Explicit
[04/24/2026-02:26:01] [E] [TRT] ModelImporter.cpp:149: ERROR: onnxOpCheckers.cpp:923 In function check:
[04/24/2026-02:26:01] [E] Failed to parse onnx file
&&&& FAILED TensorRT.trtexec [TensorRT v101600] [b72] # trtexec --onnx=m.onnx
"""


def test_times_of_our_own():
    assert compute_times_us(f"[\n  {RECORD}\n, {RECORD}\n]\n") == [13018.1, 13018.1]


@pytest.mark.parametrize("text", ["", "[", "[1]", '{"computeMs": 1}', '[{"computeMs": null}]'])
def test_times_that_cannot_be_read(text):
    with pytest.raises(FaultError):
        compute_times_us(text)


@pytest.mark.parametrize(
    ("log", "said"),
    [("[TensorRT v101600]", "10.16.0"), ("[TensorRT v8401]", "8.4.1"), ("[TensorRT v110400]", "11.4.0"), ("", "")],
)
def test_versions(log, said):
    assert version(log) == said


def test_faults():
    assert faults(FAILED) == [
        "ModelImporter.cpp:149: ERROR: onnxOpCheckers.cpp:923 In function check:",
        "Failed to parse onnx file",
    ]


@pytest.mark.data
def test_recorded_times(test_data):
    whole = test_data / "samples/trtexec_json/trex_rtx3090_resnet_fp32.timing.json"
    assert 12_000 < sorted(compute_times_us(whole.read_text()))[0] < 14_000
    samples = sorted((test_data / "samples/trtexec_json").glob("times_orin_nano_*.first500.json.txt"))
    assert len(samples) == 4
    for path in samples:  # the ends of the files were cut off
        times_us = compute_times_us(path.read_text() + "]")
        assert len(times_us) == 500
        assert all(1_500 < us < 20_000 for us in times_us)


@pytest.mark.data
def test_recorded_logs(test_data):
    logs = {path.stem: path.read_text(errors="replace") for path in (test_data / "samples/trtexec_log").iterdir()}
    found = {version(log) for log in logs.values()}
    assert {"8.2.3", "8.2.4", "8.4.0", "8.4.1", "8.6.0", "10.3.0", "10.14.1", "10.16.0", "10.16.1", "10.16.2"} <= found
    assert "Failed to parse onnx file" in faults(logs["trt101600_FAILED_cookbook_result-08"])
    assert faults(logs["trt101601_cookbook_result-01"]) == []


def install(folder: Path, body: str) -> None:
    """Install a stand-in for trtexec, since these tests run without the real one."""
    path = folder / "trtexec"
    path.write_text(f"#!{sys.executable}\nimport json, sys\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


TIMES = """\
given = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:] if "=" in a)
print("&&&& RUNNING TensorRT.trtexec [TensorRT v110400]", given)
assert given["shapes"] == "image:1x3x16x16" and "--noDataTransfers" in sys.argv and "--useCudaGraph" in sys.argv
json.dump([{"computeMs": 7.0}] * 100, open(given["exportTimes"], "w"))
"""


@pytest.mark.usefixtures("tensorrt")
def test_a_second_opinion(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    job = job_for(tmp_path, BenchJob, modes=tuple(Mode(1, *way) for way in WAYS), complete=True)
    install(tmp_path, TIMES)
    result, _ = done(job, tmp_path)
    assert result.trtexec.version == "11.4.0"
    assert result.trtexec.mode == Mode(1, transfers=False, cuda_graph=True)
    assert result.trtexec.pruned == Timing(p50_us=7000, p90_us=7000, p99_us=7000, mean_us=7000, cv=0, n=100)
    assert any("trtexec times the pruned engine at 7000.0 us" in warning for warning in result.warnings)
    install(tmp_path, 'print("[E] Engine set up failed"); sys.exit(1)')
    result, _ = done(job, tmp_path)
    assert result.trtexec is None
    assert any("did not time the original engine" in w and "Engine set up failed" in w for w in result.warnings)
