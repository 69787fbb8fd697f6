"""The example as a script, in a separate folder; tests/docs runs it on the command line."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.tiny import CHECKOUT

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
