"""The commands that run on a GPU: their input is valid, and their output is kept."""

import json
from pathlib import Path

from benchmarks.product import on_gpu
from catro_deploy.settings import load_settings
from catro_deploy.targets import load_target


def test_settings_and_target_are_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cuda.toml").write_text(on_gpu.CUDA_TARGET.format(target='"x86-gpu-h100"', batch=32))
    Path("catro.toml").write_text(on_gpu.CONFIG.format(model='"cifar_resnet20"', size=32))
    settings = load_settings(Path("catro.toml"), {"prune": {"target": "./cuda.toml"}})
    target = load_target(settings.prune.target)
    assert (target.runtime, target.batch) == ("onnxruntime-cuda", 32)
    assert target.gpu is not None


def test_output_and_exit_codes_are_kept(tmp_path):
    works = on_gpu.run(["--version"], tmp_path, 60)
    assert (works["exit"], works["output"].split()[0]) == (0, "catro-deploy")
    assert on_gpu.run(["no-such-command"], tmp_path, 60)["exit"] == 2
    late = on_gpu.run(["doctor"], tmp_path, 0.01)
    assert late["exit"] is None
    assert json.dumps(late)
