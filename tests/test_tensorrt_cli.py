"""The whole command line with TensorRT, with real bindings and simulated engines: see tests/doubles."""

import json
from pathlib import Path

import pytest

from catro_deploy.files import file_hash
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.pruning import finding
from tests.tiny import Blocks, command, exit_code_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("tensorrt")]


def read(run: Path, name: str) -> dict:
    return json.loads((run / f"{name}.json").read_text())


def test_from_the_checkpoint_to_the_report(tiny):
    done = command("run", "--target", "x86-gpu", "--budget", "50%flops", "--rebuilds", "2", "--run", "run")
    assert done.exit_code == exit_code_of(tiny / "run"), done.stderr
    run = tiny / "run"
    build, verify, bench, report = (read(run, name) for name in ("build", "verify", "bench", "report"))
    for name in ("original", "pruned"):
        assert build[name]["onnx_sha256"] == file_hash(run / f"{name}.fp16.onnx")
        assert build[name]["engine_sha256"] == file_hash(run / f"{name}.engine")
        assert len(build[name]["rebuilds_us"]) == 2
        assert verify[name]["agreement"] == 1.0
        assert verify[name]["largest_logit_difference"] < 0.01
        assert verify["onnxruntime"][name]["largest_logit_difference"] < 1e-4
        assert verify["onnxruntime"][name]["accuracy"] == verify[name]["torch"]
    assert verify["runtime"].startswith("tensorrt 11.4")
    assert bench["environment"]["precision"] == "fp16"
    assert bench["mode"] == {"batch": 1, "transfers": False, "cuda_graph": True}
    assert bench["environment"]["launch"] == "as one CUDA graph"
    assert len(bench["further"]) == 3
    assert len(report["modes"]) == 4
    assert report["engines"]["pruned"]["spread"] >= 1
    for page in ((run / f"report.{kind}").read_text() for kind in ("md", "html")):
        assert "Strongly typed engines, built on the device by TensorRT 11.4.0.106 for its Double of a GPU" in page
        assert "Latency, mode by mode" in page

    again = command("run", "--target", "x86-gpu", "--budget", "50%flops", "--rebuilds", "2", "--run", "run")
    assert "build: unchanged, skipped" in again.stderr
    counted = command("bench", "--run", "run", "--transfers", "--no-cuda-graph")
    assert counted.exit_code == exit_code_of(run, "bench"), counted.stderr
    assert read(run, "bench")["mode"] == {"batch": 1, "transfers": True, "cuda_graph": False}


def test_the_precision_of_engines_is_decided_by_measuring_them(tiny):
    """The double computes int8 in ONNX Runtime, so the winner is meaningless; the test checks that all are tried."""
    flags = ("--target", "x86-gpu", "--budget", "50%flops", "--precision", "auto", "--run", "run")
    done = command("run", *flags)
    assert done.exit_code == exit_code_of(tiny / "run"), done.stderr
    run = tiny / "run"
    decided, build, verify = (read(run, name) for name in ("quantize", "build", "verify"))
    assert (decided["own"], set(decided["candidates"])) == ("fp16", {"fp32", "fp16", "int8"})
    assert decided["made"]["int8"]["form"] == "tensorrt"
    shipped = decided["shipped"]
    served = run / ("pruned.onnx" if shipped == "fp32" else f"pruned.{shipped}.onnx")
    assert build["pruned"]["onnx_sha256"] == file_hash(served)
    assert build["original"]["onnx_sha256"] == file_hash(run / "original.fp16.onnx")
    assert verify["precision"] == {"original": "fp16", "pruned": shipped}


def test_no_precision_is_decided_where_nothing_can_be_measured(tiny):
    refused = command("run", "--target", "jetson-orin", "--budget", "50%flops", "--precision", "int8")
    assert refused.exit_code == 2
    assert "A precision is decided by measurement, and jetson-orin cannot be reached from here" in refused.stderr


def test_a_budget_of_latency_is_met_by_measuring_engines(tiny, monkeypatch):
    monkeypatch.setattr(finding, "CANDIDATES", "./moment.toml")
    save_weights(Blocks(3), tiny / "blocks.safetensors")
    blocks = ("--model", "tests.tiny:blocks", "--checkpoint", "blocks.safetensors")
    done = command("prune", "--target", "x86-gpu", *blocks, "--budget", "0.9x", "--run", "run")
    met = (tiny / "run" / "plan.json").is_file()  # on a busy machine it may miss, after measuring
    assert done.exit_code == (0 if met else 3), done.stderr
    assert "round 1: estimate" in done.stderr
    if met:
        plan = read(tiny / "run", "plan")
        assert plan["latency"]["how"] == "estimate"
        assert plan["latency"]["rounds"]
        assert "only whole networks were measured on it" in plan["latency"]["warnings"][0]


def test_layers_are_not_timed(tiny):
    refused = command("profile", "--target", "x86-gpu")
    assert refused.exit_code == 2
    assert "Layers are not timed on x86-gpu" in refused.stderr


def test_a_cpu_needs_no_engines(tiny_run):
    refused = command("build", "--run", "run")
    assert refused.exit_code == 2
    assert "x86-cpu runs ONNX files directly" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("variable", "value", "code", "says"),
    [
        ("CATRO_DOUBLE_UNSUPPORTED", "Conv", 2, "cannot run original.fp16.onnx"),
        ("CATRO_DOUBLE_NO_BUILD", "1", 1, "could not build the engine"),
        ("CATRO_DOUBLE_NO_GPU", "1", 1, "CUDA finds no GPU"),
    ],
)
def test_what_goes_wrong_is_reported_and_leaves_what_was_there(tiny, monkeypatch, variable, value, code, says):
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("CATRO_CACHE", str(tiny / "cache"))  # no engines of other tests
    failed = command("run", "--target", "x86-gpu", "--budget", "50%flops", "--run", "run")
    assert failed.exit_code == code
    assert says in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tiny / "run" / "build.json").exists()
    assert not list((tiny / "run").glob("*.engine"))
    monkeypatch.delenv(variable)
    done = command("run", "--target", "x86-gpu", "--budget", "50%flops", "--run", "run")
    assert done.exit_code == exit_code_of(tiny / "run"), done.stderr
    assert "export: unchanged, skipped" in done.stderr


def test_export_builds_and_checks(tiny):
    for stage in ("prune", "finetune"):
        assert command(stage, *(("--target", "x86-gpu") if stage == "prune" else ())).exit_code == 0
    done = command("export")
    assert done.exit_code == 0, done.stderr
    (run,) = (tiny / "runs").glob("x86-gpu-*")
    assert (run / "pruned.engine").is_file()
    assert read(run, "verify")["passed"]
    assert "tensorrt 11.4" in done.stdout


def test_a_target_of_estimates_gets_no_bundle(tiny):
    assert command("prune", "--target", "jetson-xavier-nx").exit_code == 0
    assert command("finetune").exit_code == 0
    assert command("export").exit_code == 0
    (run,) = (tiny / "runs").glob("jetson-xavier-nx-*")
    assert not (run / "bundle.tar").exists()
    refused = command("bundle")
    assert refused.exit_code == 2
    assert "Jetson Xavier NX, 20 W there are estimates only" in refused.stderr
    assert "targets show jetson-xavier-nx" in refused.stderr


def test_export_for_an_unknown_device_writes_a_bundle(tiny):
    for stage in ("prune", "finetune"):
        assert command(stage, *(("--target", "jetson-orin") if stage == "prune" else ())).exit_code == 0
    done = command("export")
    assert done.exit_code == 0, done.stderr
    (run,) = (tiny / "runs").glob("jetson-orin-*")
    assert "jetson-orin cannot be reached from here: build the engines there" in done.stderr
    assert f"carry {run.relative_to(tiny)}/bundle.tar to the device" in done.stderr
    assert (run / "bundle.tar").stat().st_size > 1e5
