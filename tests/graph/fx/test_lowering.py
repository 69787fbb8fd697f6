"""Networks with layers of user-defined classes, lowered to torch's, against the originals."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from catro_deploy.graph.fx.lowering import lower_layers_
from catro_deploy.graph.tracing.symbolic import evaluation_graph
from tests.graph.networks import randomised
from tests.graph.user_networks import Derived, NormActivation, SamePadded, StandardisedConv2d

SHAPE = (3, 9, 8)


def lowered(model: nn.Module) -> dict[str, nn.Module]:
    """The layers of the lowered graph by name, once it was checked to compute the same as ``model``."""
    model = randomised(model).double().eval()
    images = torch.randn(3, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    graph = evaluation_graph(model.float()).module
    lower_layers_(graph, SHAPE)
    torch.testing.assert_close(graph.double()(images), model.double()(images), rtol=1e-9, atol=1e-9)
    return dict(graph.named_modules())


def test_padding_and_activations_become_operations_of_their_own():
    layers = lowered(Derived())
    assert {type(layers[name]) for name in ("stem", "depthwise", "point")} == {nn.Conv2d}
    assert {type(layers[name]) for name in ("stem_bn", "depthwise_bn")} == {nn.BatchNorm2d}
    assert type(layers["stem_bn.act"]) is nn.SiLU
    assert layers["depthwise"].groups == 6
    assert layers["stem"].stride == (2, 2)


def test_the_network_itself_stays_as_it_is():
    model = Derived().eval()
    lower_layers_(evaluation_graph(model).module, SHAPE)
    assert (type(model.stem), type(model.stem_bn)) == (SamePadded, NormActivation)


class PaddedWithOnes(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(functional.pad(x, [1, 1, 1, 1], value=1.0))


class Doubled(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Scaled(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(3 * x)


class Noted(SamePadded):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.register_forward_hook(lambda module, given, result: result + 1)


@pytest.mark.parametrize("kind", [PaddedWithOnes, Doubled, Scaled, Noted, StandardisedConv2d])
def test_a_convolution_that_does_more_stays(kind):
    assert type(lowered(nn.Sequential(kind(3, 4, 3), nn.Flatten()))["0"]) is kind


class Before(nn.BatchNorm2d):
    """Activates before it normalises."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.act = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.act(x))


def test_a_normalisation_that_does_something_else_stays():
    assert type(lowered(nn.Sequential(nn.Conv2d(3, 4, 3), Before(4), nn.Flatten()))["1"]) is Before


class OwnLinear(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight, self.bias)


class Normed(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(functional.normalize(x, dim=-1), self.weight, self.bias)


@pytest.mark.parametrize(("kind", "becomes"), [(OwnLinear, nn.Linear), (Normed, Normed)])
def test_linear_layers_are_compared(kind, becomes):
    assert type(lowered(nn.Sequential(nn.Flatten(), kind(3 * 9 * 8, 4)))["1"]) is becomes


def test_what_is_called_at_two_sizes_stays():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = SamePadded(3, 3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(functional.max_pool2d(self.conv(x), 2)).flatten(1)

    assert type(lowered(Twice())["conv"]) is SamePadded
