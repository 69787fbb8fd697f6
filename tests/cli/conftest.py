import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from catro_deploy import pipeline
from catro_deploy.cli.main import app
from catro_deploy.files import write_text
from tests.quick_stages import TABLE

CHECKOUT = Path(__file__).parents[2]

# The real command line with the quick stages, in a separate process to which signals can be sent.
QUICK = (
    "from catro_deploy import pipeline\n"
    "from tests.quick_stages import TABLE\n"
    "pipeline.STAGES, pipeline.TRAIN = TABLE, 'tests.quick_stages:train'\n"
    "from catro_deploy.cli.main import main\n"
    "main()"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a catro.toml and a checkpoint."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "catro.toml", '[model]\ncheckpoint = "model.pth"\n[finetune]\nepochs = 3\n')
    write_text(tmp_path / "model.pth", "weights")
    return tmp_path


@pytest.fixture
def catro(folder, monkeypatch):
    """Run a command line with the quick stages in this process."""
    monkeypatch.setattr(pipeline, "STAGES", TABLE)
    monkeypatch.setattr(pipeline, "TRAIN", "tests.quick_stages:train")

    def invoke(*arguments):
        return CliRunner().invoke(app, arguments, prog_name="catro-deploy")

    return invoke


@pytest.fixture
def start(folder):
    """Start a command line with the quick stages in a separate process."""

    def popen(*arguments, environment=None, **options):
        return subprocess.Popen(
            [sys.executable, "-c", QUICK, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(CHECKOUT)} | (environment or {}),
            **options,
        )

    return popen


@pytest.fixture
def the_run(folder):
    """A function that returns the path of the only run folder."""

    def find():
        (found,) = [path for path in (folder / "runs").iterdir() if (path / "stages.json").is_file()]
        return found

    return find


def document(result):
    """The one JSON document on stdout."""
    return json.loads(result.stdout)
