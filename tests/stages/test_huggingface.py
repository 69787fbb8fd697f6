"""A network of Hugging Face transformers, pruned on generated images; its folder is not needed afterwards."""

import itertools
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from catro_deploy import networks
from catro_deploy.errors import ModelError
from catro_deploy.graph.cut.surgery import masked
from catro_deploy.progress import Silent
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import load_settings
from catro_deploy.stages.original import open_original
from catro_deploy.stages.pretrained import with_pretrained
from catro_deploy.stages.prune import prune
from catro_deploy.stages.table import STAGES
from tests.models.huggingface import change_json, save_network

NAMES = ("blue", "green", "red")


def settings_of(folder):
    """Settings for a small ResNet and images with one dominant colour each."""
    pytest.importorskip("transformers")
    save_network(folder / "net", "resnet", NAMES)
    for (number, name), split in itertools.product(enumerate(NAMES), ("train", "val")):
        (folder / "images" / split / name).mkdir(parents=True)
        for seed in range(12 if split == "train" else 3):
            pixels = np.random.default_rng(seed).integers(0, 100, (32, 32, 3), dtype=np.uint8)
            pixels[..., 2 - number] += 100
            Image.fromarray(pixels).save(folder / "images" / split / name / f"{seed}.png")
    text = """
[model]
name = "transformers:net"
[data]
name = "imagefolder"
root = "images"
[prune]
classes = ["red", "blue"]
budget = "80%flops"
reconstruct = false
d_min = 4
"""
    (folder / "catro.toml").write_text(text)
    return with_pretrained(load_settings(folder / "catro.toml", {}), Silent())


def test_another_configuration_is_another_pruning(tmp_path):
    settings = settings_of(tmp_path)
    stage = next(stage for stage in STAGES if stage.name == "prune")
    before = dict(stage.outside(settings))
    assert stage.outside(settings) == before
    change_json(tmp_path / "net" / "config.json", hidden_act="gelu")
    assert stage.outside(settings) != before


@pytest.mark.slow
def test_a_run_loads_without_the_folder(tmp_path):
    settings, run = settings_of(tmp_path), RunFolder(tmp_path / "run")
    run.path.mkdir()
    plan = prune(settings, run, Silent())
    assert (plan.classes, plan.class_indices) == (("red", "blue"), (2, 0))
    assert plan.pruned_macs <= 0.8 * plan.original_macs
    images, whole = torch.randn(2, 3, 32, 32), open_original(settings).model
    shutil.rmtree(tmp_path / "net")
    original, pruned = (networks.load(run, weights=which) for which in ("original", "pruned"))
    with torch.inference_mode():
        torch.testing.assert_close(original(images), whole(images))
        torch.testing.assert_close(pruned(images), masked(original, plan.keeps)(images), rtol=1e-4, atol=1e-4)
    change_json(run.plan, architecture={})
    with pytest.raises(ModelError, match=r"config\.json"):  # now only the folder describes the architecture
        networks.load(run, weights="pruned")
