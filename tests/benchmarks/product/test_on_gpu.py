"""The commands that are to run on a GPU: what they are given is valid, and what they say is kept."""

import json
import sys
from pathlib import Path

from benchmarks.product import on_gpu
from catro_deploy.settings import load_settings
from catro_deploy.targets import load_target


def test_settings_and_target_are_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cuda.toml").write_text(on_gpu.CUDA_TARGET)
    Path("catro.toml").write_text(on_gpu.CONFIG.format(model='"cifar_resnet20"', size=32, target='"./cuda.toml"'))
    settings = load_settings(Path("catro.toml"), {})
    target = load_target(settings.prune.target)
    assert target.runtime == "onnxruntime-cuda"
    assert target.gpu is not None


def test_output_and_exit_codes_are_kept(tmp_path):
    python = Path(sys.executable)
    works = on_gpu.run(python, ["--version"], tmp_path, 60)
    assert (works["exit"], works["output"].split()[0]) == (0, "catro-deploy")
    assert on_gpu.run(python, ["no-such-command"], tmp_path, 60)["exit"] == 2
    late = on_gpu.run(python, ["doctor"], tmp_path, 0.01)
    assert late["exit"] is None
    assert json.dumps(late)
