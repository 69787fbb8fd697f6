"""MACs of everything that runs, against counts by hand and by torch's own counter."""

import pytest
import timm
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from catro_deploy.graph.coupling.macs import count_macs
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.models import build_model
from tests.graph.networks import Branches, Grouped, Residual
from tests.graph.user_networks import Attending, Functional, Upsampled


@pytest.mark.parametrize("network", [Branches, Grouped, Residual, Functional, Upsampled])
def test_networks_of_layers_alone_have_the_macs_of_their_layers(network):
    found = trace(network(), (3, 8, 8))
    assert found.other_macs == 0
    assert found.macs == sum(layer.macs for layer in found.layers) == count_macs(network(), (3, 8, 8))


def test_products_of_feature_maps():
    # value (8 x 64) @ softmax(key' (64 x 8) @ query (8 x 64)).
    found = trace(Attending(), (3, 8, 8))
    assert found.other_macs == 64 * 8 * 64 + 8 * 64 * 64


class Sequence(nn.Module):
    """The positions of the image pass through torch's attention, then through a bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Conv2d(3, 12, 1)
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.lstm = nn.LSTM(12, 5, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(10, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.tokens(x)).flatten(2).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.fc(self.lstm(x)[0].mean(1))


def test_attention_and_recurrent_layers():
    attention = 16 * 12 * 36 + 2 * (16 * 6 * 16) * 2 + 16 * 12 * 12
    lstm = 2 * 16 * (4 * 5) * (12 + 5)
    assert count_macs(Sequence(), (3, 4, 4)) == 16 * 3 * 12 + attention + lstm + 10 * 4
    found = trace(Sequence().eval(), (3, 4, 4))
    assert found.macs == count_macs(Sequence(), (3, 4, 4))


class Recurrent(nn.Module):
    """Rows of the image pass through a recurrent layer, which is called twice."""

    def __init__(self, layer: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer, self.fc = layer(12, 12, batch_first=True), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.layer(input=self.layer(x.flatten(2))[0])[0].mean(1))


@pytest.mark.parametrize(("layer", "gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
def test_recurrent_layers_count_once_whether_torch_counts_them_or_not(layer, gates):
    assert count_macs(Recurrent(layer), (3, 3, 4)) == 2 * 3 * gates * 12 * (12 + 12) + 12 * 4


def networks(name: str) -> nn.Module:
    return timm.create_model("mobilevit_xxs", num_classes=10) if "mobilevit" in name else build_model(name, 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "torchvision:resnet18",
        "torchvision:mobilenet_v2",
        "timm:mobilevit_xxs",
        "timm:regnety_002",
        "timm:botnet26t_256",
    ],
)
def test_architectures_as_torch_counts_them(name):
    model, size = networks(name).eval(), 256 if "botnet" in name else 64
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:  # not every release counts attention on CPUs
        model(torch.zeros(1, 3, size, size))
    assert trace(model, (3, size, size)).macs == counter.get_total_flops() // 2
