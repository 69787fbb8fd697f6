import pytest

from catro_deploy import pipeline
from catro_deploy.files import write_text
from catro_deploy.runs.folder import RunFolder


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "baseline.safetensors", "weights")
    monkeypatch.setattr(pipeline, "TRAIN", "tests.quick_stages:train")


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")
