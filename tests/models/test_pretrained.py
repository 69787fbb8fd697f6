"""Weights published by libraries, without downloading any."""

import hashlib

import pytest
import timm
import torch
import torchvision

from catro_deploy.errors import ModelError
from catro_deploy.models.imagenet import classes_setting, imagenet_ids, imagenet_names
from catro_deploy.models.pretrained import fetch, pretrained

FEATURES = "IMAGENET1K_FEATURES"
CNNS = [
    (name, weights.name)
    for name in torchvision.models.list_models(module=torchvision.models)
    if not name.startswith(("vit_", "swin_", "maxvit_"))
    for weights in torchvision.models.get_model_weights(name)
    if weights.name != FEATURES
]


def test_all_weights_of_torchvision_are_understood():
    for name, weights in CNNS:
        found = pretrained(f"torchvision:{name}", weights)
        assert found.classes == "imagenet1k"
        assert found.size[0] <= found.resize
        assert 0.5 < found.accuracy < 0.9
        assert found.file.suffix == ".pth"


def test_default_weights_are_the_librarys():
    assert pretrained("torchvision:resnet50", "DEFAULT").weights == "IMAGENET1K_V2"
    assert pretrained("timm:resnet50", "DEFAULT").weights == timm.models.get_pretrained_cfg("resnet50").tag
    assert pretrained("timm:resnet50.a1_in1k", "DEFAULT") == pretrained("timm:resnet50", "a1_in1k")


def test_inceptions_normalise_their_input_once_more():
    # Theirs: x * (std / 0.5) + (mean - 0.5) / 0.5, applied to x normalised by mean and std.
    weights = torchvision.models.get_model_weights("googlenet").DEFAULT
    network = torchvision.models.googlenet(weights=None, init_weights=False, transform_input=True)
    pixels = torch.rand(2, 3, 8, 8)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (weights.transforms().mean, weights.transforms().std))
    found = pretrained("torchvision:googlenet", "DEFAULT")
    own_mean, own_std = (torch.tensor(values).view(3, 1, 1) for values in (found.mean, found.std))
    torch.testing.assert_close((pixels - own_mean) / own_std, network._transform_input((pixels - mean) / std))


@pytest.mark.parametrize(
    ("name", "weights", "said"),
    [
        ("torchvision:resnet50", "IMAGENET1K_V3", "IMAGENET1K_V"),
        ("timm:resnet50", "a9_in1k", "a1_in1k"),
        ("torchvision:resnet51", "DEFAULT", "resnet50"),
        ("torchvision:vgg16", FEATURES, "classifier"),
        ("cifar_resnet20", "DEFAULT", "checkpoint"),
    ],
)
def test_weights_that_are_not_there(name, weights, said):
    with pytest.raises(ModelError) as refused:
        pretrained(name, weights)
    assert said in refused.value.hint


def test_weights_are_taken_from_the_cache_or_downloaded_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    found = pretrained("torchvision:resnet18", "DEFAULT")
    assert found.file.is_relative_to(tmp_path)
    published = tmp_path / "published.pth"
    published.write_bytes(b"weights")
    here = type(found)(**{**vars(found), "url": published.as_uri()})
    with pytest.raises(ModelError) as refused:  # the checksum in the file name differs
        fetch(here)
    assert str(found.file) in refused.value.hint
    assert not found.file.exists()
    digest = hashlib.sha256(b"weights").hexdigest()[:8]
    right = type(found)(**{**vars(here), "file": found.file.with_name(f"resnet18-{digest}.pth")})
    assert fetch(right).read_bytes() == b"weights"
    published.unlink()
    assert fetch(right).read_bytes() == b"weights"


def test_imagenets_names_and_ids():
    names, ids = imagenet_names(), imagenet_ids()
    assert len(set(names)) == len(ids) == 1000
    assert (names[0], names[217], names[482]) == ("tench", "English springer", "cassette player")
    assert (ids["n01440764"], ids["n02102040"], ids["n02979186"]) == (0, 217, 482)


def test_imagenets_classes_are_known_by_the_names_that_others_give_them():
    info = timm.data.ImageNetInfo("imagenet-1k")
    names = [info.index_to_description(index) for index in range(1000)]
    assert names[:2] == ["tench, Tinca tinca", "goldfish, Carassius auratus"]
    assert classes_setting(names) == "imagenet1k"
    assert classes_setting(imagenet_names()) == "imagenet1k"
    with_background = classes_setting(["background", *names])
    assert len(with_background) == 1001
    assert with_background[:2] == [("background", "background"), ("n01440764", "tench")]
    assert classes_setting(names[::-1]) == names[::-1]
    assert classes_setting(["cat", "dog"]) == ["cat", "dog"]
