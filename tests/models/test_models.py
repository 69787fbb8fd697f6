"""Names to networks."""

import pytest
import torch

from catro_deploy.errors import ModelError
from catro_deploy.models import build_model, default_size


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
    assert default_size("torchvision:resnet18") == (224, 224)
    assert default_size("cifar_resnet20") == (32, 32)


@pytest.mark.parametrize("name", ["cifar_resnet21", "resnet", "cifar_resnet"])
def test_unknown_names(name):
    with pytest.raises(ModelError, match="Known are cifar_resnet"):
        build_model(name, 10)


def test_a_near_name_of_torchvision():
    with pytest.raises(ModelError, match=r"Did you mean .*resnet50"):
        build_model("torchvision:resnet500", 10)


def test_a_factory_of_the_user(tmp_path, monkeypatch):
    (tmp_path / "my_signs.py").write_text(
        "from torch import nn\ndef net(classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(12, classes))\n\n\n"
        "def text(classes):\n    return 'net'\n\n\ndef broken(classes):\n    raise RuntimeError('no weights')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert build_model("my_signs:net", 3)(torch.zeros(1, 3, 2, 2)).shape == (1, 3)
    with pytest.raises(ModelError, match="returned a str"):
        build_model("my_signs:text", 3)
    with pytest.raises(ModelError, match="no weights"):
        build_model("my_signs:broken", 3)
    with pytest.raises(ModelError, match="No module named"):
        build_model("not_there:net", 3)
