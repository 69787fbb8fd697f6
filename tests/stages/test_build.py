"""What a device sends back while it builds engines."""

import base64
from types import SimpleNamespace

import pytest

from catro_deploy.agent.events import FilePiece
from catro_deploy.errors import DeviceError
from catro_deploy.progress import Silent
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import load_settings
from catro_deploy.stages import build as stage


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "weights", ""])
def test_a_device_does_not_choose_where_its_files_are_written(tmp_path, monkeypatch, name):
    run = RunFolder(tmp_path / "deep" / "down" / "run")
    run.path.mkdir(parents=True)

    def hostile(*_, on_event, **__):
        on_event(FilePiece(name, base64.b64encode(b"anything").decode()))

    errand = SimpleNamespace(job=SimpleNamespace(models={"original": None, "pruned": None}), files=[], limit_s=1)
    monkeypatch.setattr(stage, "require_reachable", lambda *_: None)
    monkeypatch.setattr(stage, "build_errand", lambda *_: errand)
    monkeypatch.setattr(stage, "run_job", hostile)
    with pytest.raises(DeviceError, match=repr(name)):
        stage.build(load_settings(None, {"prune": {"target": "x86-gpu"}}), run, Silent())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
