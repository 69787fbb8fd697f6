"""Settings from a network and a folder of images."""

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from catro_deploy.errors import DataError, ModelError
from catro_deploy.models import build_model
from catro_deploy.settings import load_settings
from catro_deploy.stages.images import classes_with_images, open_images_of
from catro_deploy.stages.starting import Start, _look_at_images_, start_from
from tests.data.shard_files import samples, write_tar
from tests.models.huggingface import save_network
from tests.tiny import TinyNet

WORDNET = ("n01440764", "n02102040", "n02979186")


def photographs(root, names, splits=("train", "val")):
    for split in splits:
        for name in names:
            (root / split / name).mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (40, 30), (number, 0, 0)).save(root / split / name / f"{number}.png")
    return root


def weights_of(name, classes, path):
    save_file(build_model(name, classes).state_dict(), path)
    return path


@pytest.mark.parametrize("names", [WORDNET, ("tench", "English_springer", "cassette-player")], ids=["ids", "names"])
def test_a_library_network_and_folders_of_some_of_its_classes(tmp_path, names):
    start = start_from("torchvision:resnet50", None, None, photographs(tmp_path, names))
    assert start.sections == {
        "model": {"name": "torchvision:resnet50", "weights": "IMAGENET1K_V2"},
        "data": {"name": "imagefolder", "root": str(tmp_path)},
    }
    assert any("3 classes of the network's 1000" in line for line in start.assumed)
    assert any("224x224" in line and "232" in line for line in start.assumed)


def test_own_weights_of_imagenets_classes(tmp_path):
    checkpoint = weights_of("timm:lcnet_035", 1000, tmp_path / "mine.safetensors")
    start = start_from("timm:lcnet_035", checkpoint, None, photographs(tmp_path / "photos", WORDNET))
    assert start.sections["model"]["classes"] == "imagenet1k"
    settings = load_settings(None, start.sections)
    assert classes_with_images(open_images_of(settings, (32, 32))) == (0, 217, 482)


def test_own_weights_of_the_datas_classes(tmp_path):
    torch.save(TinyNet(3).state_dict(), tmp_path / "tiny.pth")
    start = start_from("tests.tiny:network", tmp_path / "tiny.pth", None, photographs(tmp_path / "photos", "abc"), "8")
    assert "classes" not in start.sections["model"]
    assert any("3 outputs are the classes in" in line for line in start.assumed)
    assert start.sections["model"]["mean"] == pytest.approx(np.array([0.485, 0.456, 0.406]))


def test_own_weights_of_more_classes_than_the_datas(tmp_path):
    torch.save(TinyNet(7).state_dict(), tmp_path / "tiny.pth")
    photos, others = photographs(tmp_path / "photos", ("5", "2")), photographs(tmp_path / "others", ("cat", "5"))
    start = start_from("tests.tiny:network", tmp_path / "tiny.pth", None, photos, "8")
    assert start.sections["model"]["classes"] == 7
    assert any("2 classes of the network's 7 are wanted: 2, 5" in line for line in start.assumed)
    with pytest.raises(DataError) as refused:
        start_from("tests.tiny:network", tmp_path / "tiny.pth", None, others, "8")
    assert "cat" in refused.value.problem


def test_shards_of_some_of_its_classes(tmp_path):
    for name in ("train", "val"):
        write_tar(tmp_path / f"{name}-0.tar", samples([482, 0, 217, 0, 482, 217]))
    start = start_from("torchvision:resnet18", None, "IMAGENET1K_V1", tmp_path)
    assert start.sections["data"] == {"name": "webdataset", "root": str(tmp_path)}
    assert any("3 classes of the network's 1000" in line for line in start.assumed)


def test_images_without_labels(tmp_path):
    for number in range(6):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / f"{number}.png")
    start = start_from("torchvision:resnet18", None, "IMAGENET1K_V1", tmp_path)
    assert start.sections["data"]["name"] == "images"
    assert any("no labels" in line for line in start.assumed)


def test_what_cannot_be_started_from(tmp_path):
    with pytest.raises(ModelError) as refused:
        start_from("tests.tiny:network", None, None, tmp_path)
    assert "--checkpoint" in refused.value.hint
    with pytest.raises(DataError):
        start_from("torchvision:resnet18", None, None, tmp_path / "gone")
    with pytest.raises(DataError):
        start_from("torchvision:resnet18", None, None, tmp_path)


def test_a_folder_of_transformers(tmp_path):
    save_network(tmp_path / "net", names=("tench", "English_springer", "crane"))
    photos = photographs(tmp_path / "photos", ("tench", "crane"))
    start = start_from(f"transformers:{tmp_path / 'net'}", None, None, photos)
    assert start.sections["model"] == {"name": f"transformers:{tmp_path / 'net'}"}
    assert any("2 classes of the network's 3" in line for line in start.assumed)
    assert any("32x32" in line for line in start.assumed)


def test_traffic_signs_are_not_mirrored(tmp_path):
    (tmp_path / "gtsrb").mkdir()
    start = Start()
    _look_at_images_(start, tmp_path)
    assert (start.sections["data"]["name"], start.mirrors) == ("gtsrb", False)
