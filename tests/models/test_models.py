"""Building networks by name."""

import sys

import pytest
import torch

from catro_deploy.errors import ModelError
from catro_deploy.models import build_model, library_size


@pytest.mark.parametrize(("depth", "params"), [(20, 272_474), (56, 855_770)])
def test_cifar_resnets_have_the_known_number_of_weights(depth, params):
    # chenyaofo/pytorch-cifar-models states 0.27 and 0.86 million; identity shortcuts of the paper plus 1x1 projections
    # (16*32 + 64 + 32*64 + 128 weights) make the figures exact.
    model = build_model(f"cifar_resnet{depth}", 10)
    blocks = (depth - 2) // 6
    stages = [(16, 16), (16, 32), (32, 64)]
    expected = 3 * 16 * 9 + 32 + 650
    for before, width in stages:
        expected += before * width * 9 + width * width * 9 * (2 * blocks - 1) + 4 * width * blocks
        expected += (before * width + 2 * width) if before != width else 0
    assert sum(p.numel() for p in model.parameters()) == expected == params


def test_shapes():
    with torch.inference_mode():
        assert build_model("cifar_resnet32", 43)(torch.zeros(2, 3, 32, 32)).shape == (2, 43)
        assert build_model("torchvision:mobilenet_v3_small", 5)(torch.zeros(1, 3, 64, 64)).shape == (1, 5)
        assert build_model("timm:lcnet_035.untrained", 5)(torch.zeros(1, 3, 64, 64)).shape == (1, 5)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("cifar_resnet20", None),
        ("torchvision:resnet18", 224),
        ("torchvision:inception_v3", 299),  # as in the papers of this network and the next
        ("torchvision:efficientnet_b1", 240),
        ("timm:tf_efficientnet_b1", 240),
        ("timm:inception_v3", 299),
        ("my_package:network", None),
    ],
)
def test_libraries_say_which_size_a_network_was_made_for(name, side):
    assert library_size(name) == side


@pytest.mark.parametrize("name", ["cifar_resnet21", "resnet", "cifar_resnet"])
def test_unknown_names(name):
    with pytest.raises(ModelError, match=rf"'{name}'[\s\S]*\bcifar_resnet\{{20,"):
        build_model(name, 10)


def test_a_name_without_its_prefix():
    with pytest.raises(ModelError, match=r"Did you mean cifar_resnet20\?"):
        build_model("resnet20", 10)
    with pytest.raises(ModelError, match=r"Did you mean torchvision:resnet18 or timm:resnet18\?"):
        build_model("resnet18", 10)


def test_a_near_name_of_torchvision():
    with pytest.raises(ModelError, match=r"(?s)'resnet500'.*\bresnet50\b"):
        build_model("torchvision:resnet500", 10)


def test_a_near_name_of_timm():
    with pytest.raises(ModelError, match=r"(?s)'gostnet_100'.*\bghostnet_100"):
        build_model("timm:gostnet_100", 10)


def test_a_tag_that_timm_does_not_know():
    with pytest.raises(ModelError, match=r"(?s)'resnet50\.no_such'.*list_pretrained"):
        build_model("timm:resnet50.no_such", 10)


@pytest.mark.parametrize(
    "name",
    [
        "torchvision:vit_b_16",
        "torchvision:swin_t",
        "torchvision:maxvit_t",
        "timm:vit_tiny_patch16_224",
        "timm:levit_128",
    ],
)
def test_vision_transformers_are_out_of_scope(name):
    with pytest.raises(ModelError, match=f"{name} .*vision transformer"):
        build_model(name, 10)


def test_without_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)  # as if it were not installed
    for call in (lambda: build_model("timm:lcnet_035", 5), lambda: library_size("timm:lcnet_035")):
        with pytest.raises(ModelError, match=r"pip install 'catro-deploy\[timm\]'"):
            call()


def test_heads_of_training_are_not_built():
    for name in ("googlenet", "inception_v3"):
        assert isinstance(build_model(f"torchvision:{name}", 5).train()(torch.rand(2, 3, 96, 96)), torch.Tensor)


def test_a_factory_of_the_user(tmp_path, monkeypatch):
    (tmp_path / "my_signs.py").write_text(
        "from torch import nn\ndef net(classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(12, classes))\n\n\n"
        "def text(classes):\n    return 'net'\n\n\ndef broken(classes):\n    raise RuntimeError('no weights')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert build_model("my_signs:net", 3)(torch.zeros(1, 3, 2, 2)).shape == (1, 3)
    with pytest.raises(ModelError, match=r"my_signs:text.*\bstr\b"):
        build_model("my_signs:text", 3)
    with pytest.raises(ModelError, match="no weights"):
        build_model("my_signs:broken", 3)
    with pytest.raises(ModelError, match="not_there"):
        build_model("not_there:net", 3)


def test_what_a_factory_returns_is_unwrapped_and_in_float32(tmp_path, monkeypatch):
    (tmp_path / "my_wrapped.py").write_text(
        "from torch import nn\ndef net(classes):\n"
        "    return nn.DataParallel(nn.Sequential(nn.Flatten(), nn.Linear(12, classes)).double())\n"
    )
    monkeypatch.chdir(tmp_path)
    network = build_model("my_wrapped:net", 3)
    assert list(network.state_dict()) == ["1.weight", "1.bias"]
    assert network(torch.zeros(1, 3, 2, 2)).dtype == torch.float32
