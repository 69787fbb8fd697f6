"""A network of many classes with images of only a few, neither square nor in colour: from init to the shipped file.

The shipped file is checked by the folder names, using only Pillow and ONNX Runtime.
"""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from torch.nn import functional

from catro_deploy.files import write_text
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.runs.listing import newest_run
from tests.tiny import TinyNet, command, exit_code_of, write_work_folder

pytestmark = pytest.mark.slow

NAMES = ("zebra", "across", "yak", "down", "wolf", "vole")
HEIGHT, WIDTH, SHORTER = 12, 20, 16
SETTINGS = f"""\
[model]
name = "tests.tiny:grey_network"
checkpoint = "six.safetensors"
classes = "names.json"
mean = [0.5]
std = [0.25]

[data]
name = "imagefolder"
root = "photos"
labels = "labels.csv"
size = "{HEIGHT}x{WIDTH}"
resize = {SHORTER}

[prune]
budget = "50%flops"

[finetune]
epochs = 0

[bench]
protocol = "./moment.toml"
"""


def drawn(name, seed):
    """Stripes across or down, in an image of 40x24 pixels."""
    stripes = np.where(np.arange(40) % 8 < 4, 60, -60)
    pattern = stripes[:24, None] if name == "across" else stripes[None, :]
    noise = np.random.default_rng(seed).normal(0, 25, (24, 40))
    return Image.fromarray((128 + pattern + noise).clip(0, 255).astype(np.uint8))


def prepared(image):
    resized = image.resize((int(SHORTER * image.width / image.height), SHORTER), Image.Resampling.BILINEAR)
    left, top = (resized.width - WIDTH) // 2, (resized.height - HEIGHT) // 2
    pixels = np.asarray(resized.crop((left, top, left + WIDTH, top + HEIGHT)), np.float32)
    return ((pixels / 255 - 0.5) / 0.25)[None, None]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Images in the folders ``across`` and ``my stripes``, and a network trained on these two of its six classes."""
    monkeypatch.chdir(tmp_path)
    write_work_folder(tmp_path)  # for its short protocols
    for split, count in (("train", 12), ("val", 6)):
        for folder, name in (("across", "across"), ("my stripes", "down")):
            (tmp_path / "photos" / split / folder).mkdir(parents=True)
            for number in range(count):
                drawn(name, [len(split), number]).save(tmp_path / "photos" / split / folder / f"{number}.png")
    torch.manual_seed(0)
    network, labels = TinyNet(len(NAMES), channels=1), torch.tensor([1, 3] * 16)
    images = torch.cat([torch.from_numpy(prepared(drawn(NAMES[label], [9, n]))) for n, label in enumerate(labels)])
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(40):
        optimizer.zero_grad()
        functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
    save_weights(network, tmp_path / "six.safetensors")
    write_text(tmp_path / "names.json", json.dumps({str(index): name for index, name in enumerate(NAMES)}))
    write_text(tmp_path / "labels.csv", "my stripes,down\n")
    write_text(tmp_path / "catro.toml", SETTINGS)
    return tmp_path


def test_the_classes_that_have_images_are_kept(work):
    done = command("run")
    run = newest_run(work / "runs")
    assert done.exit_code == exit_code_of(run.path), done.stderr
    plan = json.loads(run.plan.read_text())
    assert (plan["classes"], plan["class_indices"]) == (["across", "down"], [1, 3])
    assert plan["input_shape"] == [1, HEIGHT, WIDTH]
    assert f"-> {HEIGHT}x{WIDTH} (shorter side resized to {SHORTER}, centre crop)" in done.stderr
    session = onnxruntime.InferenceSession(run.pruned_onnx, providers=["CPUExecutionProvider"])
    for place, folder in enumerate(("across", "my stripes")):
        for path in (work / "photos" / "val" / folder).iterdir():
            (logits,) = session.run(None, {"image": prepared(Image.open(path))})
            assert logits.shape == (1, 2)
            assert logits[0].argmax() == place


def test_a_folder_is_a_name_for_its_class(work):
    done = command("prune", "--classes", "my stripes,across", "--run", "named")
    assert done.exit_code == 0, done.stderr
    plan = json.loads((work / "named" / "plan.json").read_text())
    assert plan["classes"] == ["down", "across"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('model.classes=["across", "down", "a", "b", "c"]', "network with 6 classes; [model] classes name 5"),
        ("data.labels={}", "my stripes"),
        ('data.labels={"my stripes" = 6}', "given as 6"),
        ('data.labels={"my stripes" = "across"}', "same class"),
        ('data.labels={"stripes" = "down"}', "my stripes"),
        ("data.resize=8", "smaller than size"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_done(work, setting, said):
    done = command("run", "-o", setting)
    assert done.exit_code == 2, done.stderr
    assert said in done.stderr
    assert not any((work / "runs").glob("*/plan.json"))


def test_a_network_of_other_classes_without_a_map(work):
    text = SETTINGS.replace('classes = "names.json"\n', "").replace('labels = "labels.csv"\n', "")
    write_text(work / "catro.toml", text)
    done = command("run")
    assert done.exit_code == 2
    assert "network with 6 classes; imagefolder has 2" in done.stderr
    assert "[model] classes" in done.stderr
    assert "[data] labels" in done.stderr
