"""The benchmark for NVIDIA GPUs as a command, as far as a machine without one can tell."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gpu
import pytest
import torch
from gpu import QUICK, Session, check
from gpu_device import CpuDevice, ask_nvidia_smi
from gpu_layers import Bench, choose_kernels

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.sh"
# What a GPU's host need not have.
ABSENT = (
    "onnx", "onnxruntime", "onnxscript", "onnxslim", "PIL", "pydantic", "rich", "safetensors", "scipy",
    "torch_pruning", "torchvision", "typer",
)  # fmt: skip


def test_kernels_are_chosen_and_checked():
    device = CpuDevice()
    of = Bench(device, QUICK, device.prepare(lambda: torch.zeros(64).exp()))
    with torch.inference_mode():
        chosen = choose_kernels(of, 60)
        checked = check(of)
    assert of.fusion.by_kind
    assert not any(of.fusion.by_kind.values())
    assert all(row["refused"] for row in chosen["layers"])
    assert checked["relative_errors"] == [0, 0, 0, 0]


def test_a_part_that_fails_or_comes_too_late_leaves_a_file_and_the_others(tmp_path):
    session = Session(tmp_path, CpuDevice(), quick=True, limit_s=60)

    def fail(until: float) -> dict[str, object]:
        raise RuntimeError("no such kernel")

    session.part("one", 10, fail)
    session.part("two", 10, lambda until: {"left_s": until - time.monotonic()})
    session.ends = time.monotonic()
    session.part("three", 10, lambda until: {})
    one, two, three = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two", "three"))
    assert one["error"] == "RuntimeError: no such kernel"
    assert 9 < two["left_s"] <= 10
    assert "time was up" in three["error"]
    assert session.broken


def test_nvidia_smi_is_read_or_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_nvidia_smi() is None
    tool = tmp_path / "nvidia-smi"
    line = "NVIDIA H200, GPU-1, 580.1, P0, 1980, 3201, 1980, 3201, 40, 300.5, 700.00, 99, Enabled"
    tool.write_text(f"#!/bin/sh\necho '{line}'\n")
    tool.chmod(0o755)
    found = ask_nvidia_smi()
    assert (found["driver_version"], found["clocks.sm"], found["power.limit"]) == ("580.1", "1980", "700.00")


def started(folder: Path, *options: str, absent: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command where the packages in ``absent`` cannot be imported."""
    blocked = folder / "blocked"
    for name in absent:
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text(f"raise ImportError('{name} is not installed here')\n")
    command = [str(SCRIPT), str(folder / "out"), *options]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(blocked), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--device", "cpu"], "on a CPU only --quick"),
        pytest.param(
            [], "--device cpu --quick", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
        ),
    ],
)
def test_without_a_gpu_it_says_how_to_try(options, hint, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu.py", str(tmp_path / "out"), *options])
    with pytest.raises(SystemExit) as stopped:
        gpu.main()
    assert stopped.value.code == 2
    assert hint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_dry_run_with_nothing_but_torch_and_numpy(tmp_path):
    done = started(tmp_path, "--device", "cpu", "--quick", absent=ABSENT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CPU DRY RUN")
    files = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()}
    batches = QUICK.batches
    expected = {f"{part}_batch{batch}" for part in ("cost_model", "reach") for batch in batches}
    assert set(files) == {"kernels", "staircase", *expected}
    assert all(content["dry_run"] and content["machine"]["gpu"] is None for content in files.values())
    assert files["staircase"]["measured"] == files["staircase"]["asked"]
    for batch in batches:
        cost = files[f"cost_model_batch{batch}"]
        assert cost["cells_measured"] == cost["cells_asked"]
        assert cost["errors"]["table"]["all"]["networks"] == sum(of["held_out"] for of in cost["networks"])
        assert set(files[f"reach_batch{batch}"]["modes"]) == {"width", "depth", "both"}
        assert files[f"reach_batch{batch}"]["solver"] == "greedy"


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_quick_run_on_a_gpu(tmp_path):
    done = started(tmp_path, "--quick")
    assert done.returncode == 0, done.stderr
    assert not json.loads((tmp_path / "out" / "kernels.json").read_text())["dry_run"]
