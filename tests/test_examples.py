"""The example, as a script and on the command line, in a folder of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from catro_deploy.runs.listing import newest_run
from tests.tiny import CHECKOUT, exit_code_of, start

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(
        CHECKOUT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__", "*.json")
    )
    return tmp_path


def test_as_a_script_it_prunes_exports_saves_and_loads(folder):
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "examples/own_model.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    share, accuracy = (float(figure) for figure in re.findall(r"([\d.]+)%", done.stdout)[:2])
    assert 20 < share <= 30
    assert accuracy >= 95
    assert "(head): Linear(" in done.stdout
    assert "out_features=2" in done.stdout
    assert (folder / "own_model.onnx").stat().st_size > 1000
    assert {file.name for file in (folder / "own_model").iterdir()} == {
        "plan.json",
        "original.safetensors",
        "weights.safetensors",
    }


def test_on_the_command_line_its_factories_serve_a_whole_run(folder):
    process = start("run", "--config", "examples/own_model.toml", cwd=folder)
    _, said = process.communicate()
    run = newest_run(folder / "runs")
    assert process.returncode == exit_code_of(run.path), said
    verified = json.loads(run.verify.read_text())
    assert verified["original"]["torch"] >= 0.95
    assert verified["accuracy_drop_points"] <= 5
    assert Path(folder / "examples" / "own_model.safetensors").is_file()
