"""Each tutorial is followed as written, but with smaller networks, less training and shorter measurements."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from catro_deploy.models.pretrained import pretrained
from catro_deploy.pruning import finding
from catro_deploy.runs.listing import newest_run
from tests.docs.tutorial import SHORT, follow
from tests.tiny import CHECKOUT
from tests.training.conftest import one_thread  # noqa: F401 - these networks are small too
from tests.transports.sshd import MISSING, serving

pytestmark = pytest.mark.slow

TUTORIALS = CHECKOUT / "docs" / "tutorials"
SMALL = {
    "model": {"name": "tests.tiny:blocks"},
    "data": {"name": "tests.tiny:dataset", "size": 16},
    "train": {"epochs": 20, "learning_rate": 0.1, "augment": "none"},
    "finetune": {"steps": 6, "augment": "none"},
}
SIGNS_TO_STRIPES = {
    "training cifar_resnet20": "training tests.tiny:blocks",
    "(1, 8) speed_limit_20": "(1, 2) across",
    "speed_limits": "stripes",
}


@pytest.fixture(autouse=True)
def _short_trials(monkeypatch):
    monkeypatch.setattr(finding, "CANDIDATES", "./moment.toml")


@pytest.fixture(scope="module")
def signs(tmp_path_factory):
    """The folder in which the first tutorial was followed."""
    folder = tmp_path_factory.mktemp("signs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "CANDIDATES", "./moment.toml")
        prune = SHORT["prune"] | {"classes": ["stripes"]}
        follow(TUTORIALS / "traffic-signs.md", folder, SIGNS_TO_STRIPES, prune=prune, **SMALL)
    return folder


@pytest.fixture
def after_signs(signs, tmp_path):
    """A copy of that folder, for tutorials that continue from it."""
    shutil.copytree(signs, tmp_path / "signs")
    return tmp_path / "signs"


def content(folder, name):
    return json.loads((newest_run(folder / "runs").path / f"{name}.json").read_text(encoding="utf-8"))


def test_traffic_signs_on_a_cpu(signs):
    plan = content(signs, "plan")
    assert (plan["budget"], plan["latency"]["how"]) == ("0.5x", "measured")
    assert plan["classes"] == ["across", "down"]


def test_int8(after_signs):
    # The original classifies all of these images correctly, so agreement decides.
    replaced = {"speed_limits": "stripes", "validation accuracy ": "agreement, validation images "}
    follow(TUTORIALS / "int8.md", after_signs, replaced, bench={"protocol": "quick"}, **SMALL)
    assert (after_signs / "int8" / "pruned.safetensors").is_file()


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_jetson_over_ssh(after_signs, tmp_path, monkeypatch):
    """Over a real sshd on this machine, which serves as the device."""
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path / "config"))
    (tmp_path / "sshd").mkdir()
    there = f"--ssh far --python {sys.executable} --folder {tmp_path / 'far'}"
    replaced = {
        "speed_limits": "stripes",
        "--ssh press-3.local": there,
        "press-3.local": "far",
        "/home/press/.cache/catro-deploy": str(tmp_path / "far"),
    }
    with serving(tmp_path / "sshd"):
        monkeypatch.setenv("PATH", f"{tmp_path / 'sshd' / 'bin'}{os.pathsep}{os.environ['PATH']}")
        follow(TUTORIALS / "jetson.md", after_signs, replaced, **SMALL)
    assert content(after_signs, "bench")["environment"]["reached"] == "press-3, by ssh to far"
    original = content(after_signs, "verify")["original"]
    assert original["agreement"] == 1
    assert original["largest_logit_difference"] < 1e-4
    assert content(after_signs, "plan")["latency"]["how"] == "measured"
    run = newest_run(after_signs / "runs")
    assert "press-3, by ssh to far" in run.report("md").read_text(encoding="utf-8")
    assert not (run.path / ".images.npy").exists()


def test_a_subset_of_an_imagenet_network(tmp_path, monkeypatch):
    """With a smaller network of the same library; random weights replace the published ones."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    torch.manual_seed(0)
    cached = pretrained("timm:lcnet_050", "DEFAULT").file
    cached.parent.mkdir(parents=True)
    save_file(timm.create_model("lcnet_050").state_dict(), cached)
    folders = ("tench", "English springer", "cassette_player", "n03000684", "497")
    draw_photographs(tmp_path / "photos", folders)
    replaced = {"tf_efficientnet_lite0": "lcnet_050", "weights in1k of": "weights ra2_in1k of"}
    follow(TUTORIALS / "imagenet-subset.md", tmp_path, replaced, data={"size": 32})
    plan = content(tmp_path, "plan")
    assert plan["class_indices"] == [0, 217, 482, 491, 497]
    assert plan["classes"] == ["tench", "English springer", "cassette player", "chain saw", "church"]


def draw_photographs(root: Path, folders) -> None:
    rng = np.random.default_rng(0)
    for split, count in (("train", 10), ("val", 4)):
        for folder in folders:
            (root / split / folder).mkdir(parents=True)
            for number in range(count):
                image = Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8))
                image.save(root / split / folder / f"{number}.png")


@pytest.fixture
def with_examples(tmp_path, monkeypatch):
    """A folder with a copy of ``examples``; modules are imported from it."""
    shutil.copytree(CHECKOUT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    return tmp_path


def test_your_own_model(with_examples):
    follow(TUTORIALS / "own-model.md", with_examples, train={}, finetune={}, bench={})
    verified = content(with_examples, "verify")
    assert verified["original"]["torch"] >= 0.95
    assert verified["accuracy_drop_points"] <= 5


def test_in_python(with_examples):
    follow(TUTORIALS / "python.md", with_examples)
    assert {file.name for file in (with_examples / "pruned").iterdir()} == {
        "plan.json",
        "original.safetensors",
        "weights.safetensors",
    }
