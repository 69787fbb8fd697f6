"""Multiply-accumulates by formula and as counted by torch: they agree, and a difference is detected."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.architectures.macs import compare_macs
from catro_deploy.graph.coupling.trace import trace


class Products(nn.Module):
    """On 8x8 images, two products of feature maps combine every position with every other one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.inner, self.head = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1), nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.inner(torch.relu(self.conv(x)))).flatten(2)
        return self.head((x @ torch.softmax(x.transpose(1, 2) @ x, dim=-1)).mean(2))


def plain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 1), nn.Flatten(), nn.LazyLinear(4))


def test_formulas_of_layers_are_exact_at_any_width():
    model = plain()
    model(torch.zeros(1, 3, 8, 8))
    assert compare_macs(model, trace(model, (3, 8, 8))) == {"macs_layers": 1.0, "macs_excess": 0.0}


def test_products_of_feature_maps_count_as_in_the_whole_network():
    model = Products()
    found = compare_macs(model, trace(model, (3, 8, 8)))
    layers, products, logits = 16 * 3 * 64 + 16 * 16 * 64, 2 * 64 * 64 * 16, 16 * 4
    assert found["macs_layers"] == pytest.approx((layers + logits) / (layers + logits + products))
    assert found["macs_excess"] >= 0


def test_a_formula_that_is_wrong_is_found():
    model = plain()
    model(torch.zeros(1, 3, 8, 8))
    network = trace(model, (3, 8, 8))
    first, *others = network.layers
    with pytest.raises(ArithmeticError, match=f"{network.macs:,}"):
        compare_macs(model, replace(network, layers=(replace(first, kernel=1), *others)))
