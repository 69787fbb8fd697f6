"""Networks with their normalisation folded away, against the originals."""

import pytest
import torch
from torch import nn

from catro_deploy.graph.fx.folding import folded
from catro_deploy.models import build_model
from tests.graph.networks import Residual, randomised
from tests.graph.user_networks import StandardisedConv2d


def norms(model: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def lively(model: nn.Module) -> nn.Module:
    """Give the normalisations of ``model`` random statistics and factors."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.running_var, module.weight.data):
                values.uniform_(0.5, 1.5)
            for values in (module.running_mean, module.bias.data):
                values.uniform_(-0.5, 0.5)
    return model.eval()


@pytest.mark.parametrize("name", ["cifar_resnet20", "torchvision:mobilenet_v2", "torchvision:densenet121"])
def test_it_computes_the_same_with_less_normalisation(name):
    torch.manual_seed(0)
    model = lively(build_model(name, 10)).double()
    images = torch.randn(3, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    short = folded(model)
    # DenseNets normalise concatenated outputs of earlier layers.
    assert norms(short) < norms(model) if "densenet" in name else norms(short) == 0 < norms(model)
    torch.testing.assert_close(short(images), model(images), rtol=1e-9, atol=1e-9)


def test_the_network_itself_stays_as_it_is():
    model = randomised(Residual())
    before, mode = {name: tensor.clone() for name, tensor in model.state_dict().items()}, model.train().training
    folded(model)
    assert model.training is mode
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_convolutions_that_do_more_keep_their_normalisation():
    model = randomised(nn.Sequential(StandardisedConv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())).double()
    images = torch.randn(3, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    short = folded(model)
    assert norms(short) == 1
    torch.testing.assert_close(short(images), model(images))


def test_what_others_read_too_keeps_its_normalisation():
    class ReadTwice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            maps = self.conv(images)
            return (self.bn(maps) + maps).mean((2, 3))

    model = randomised(ReadTwice())
    images = torch.rand(2, 3, 8, 8)
    short = folded(model)
    assert norms(short) == 1
    torch.testing.assert_close(short(images), model(images))


class Named(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self[1](input=self[0](input=x))


def test_layers_that_are_called_with_keywords_are_folded():
    model = lively(Named(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)))
    images = torch.randn(2, 3, 8, 8)
    found = folded(model)
    assert norms(found) == 0
    with torch.no_grad():
        torch.testing.assert_close(found(images), model(images))
