"""Which channels of each group a subnet keeps, even in another order."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.modelopt_peer import kept_groups, with_plain_convolutions
from catro_deploy.graph.coupling.trace import trace
from tests.tiny import Blocks


@pytest.fixture
def model():
    torch.manual_seed(0)
    network = Blocks(3).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias)
    return network


def reordered_(norm, channels):
    norm.weight, norm.bias = (nn.Parameter(one.detach()[channels]) for one in (norm.weight, norm.bias))


def test_channels_are_found_by_their_normalisation(model):
    network, subnet = trace(model, (3, 16, 16)), copy.deepcopy(model)
    (group,) = [one for one in network.groups if any(slot.module == "one_bn" for slot in one.slots)]
    reordered_(subnet.one_bn, [2, 0])
    found = {one.name: one for one in kept_groups(model, subnet, network)}
    assert found[group.name].kept == (0, 2)
    others = [one for name, one in found.items() if name != group.name]
    assert all(len(one.kept) == one.width for one in others)


def test_a_channel_that_is_not_the_originals_is_an_error(model):
    subnet = copy.deepcopy(model)
    subnet.one_bn.weight.data[0] += 1
    with pytest.raises(AssertionError, match="one_bn has channels that were not in the original"):
        kept_groups(model, subnet, trace(model, (3, 16, 16)))


class Padded(nn.Conv2d):
    """A convolution that pads by a module of its own, as the one of efficientnet_lite_pytorch does."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.static_padding = nn.ZeroPad2d((0, 1, 0, 1))

    def forward(self, x):
        padded = self.static_padding(x)
        return functional.conv2d(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def test_padded_convolutions_become_plain_ones_with_the_same_output():
    torch.manual_seed(0)
    model = nn.Sequential(Padded(3, 8, 3, stride=2), nn.ReLU(), Padded(8, 8, 3, groups=8, bias=False))
    plain = with_plain_convolutions(model)
    assert {type(one) for one in plain.modules() if isinstance(one, nn.Conv2d)} == {nn.Conv2d}
    images = torch.randn(2, 3, 17, 17)
    torch.testing.assert_close(plain(images), model(images), rtol=0, atol=0)
    assert isinstance(model[0], Padded)
