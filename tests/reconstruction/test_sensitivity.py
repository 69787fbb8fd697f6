"""What the logits depend on, by hand."""

import torch
from torch import nn

from catro_deploy.progress import Silent
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.sensitivity import EPSILON, logit_directions, square_root
from tests.reconstruction.networks import SHAPE, images


class Sides(nn.Module):
    """Two linear layers; a third adds nothing to the logits, and a fourth adds the same to all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.nothing, self.shift = nn.Linear(192, 3), nn.Linear(192, 4), nn.Linear(192, 1)
        self.fc = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.flatten(x, 1)
        return self.fc(self.first(x)) + self.nothing(x) * 0 + self.shift(x)


def directions(model: nn.Module, count: int, *layers: str) -> dict[str, torch.Tensor]:
    found = logit_directions(OriginalGraph.of(model, SHAPE), layers, images(count), Silent(), seed=3)
    return {name: root @ root.T for name, root in found.items()}


def test_of_the_last_layer_it_is_the_covariance_of_centred_differences():
    """For independent normal v of variance 1, v - mean(v) has the covariance I - 1/k, here summed over images."""
    found = directions(Sides(), 4000, "fc")["fc"] / 4000
    torch.testing.assert_close(found, torch.eye(4).double() - 0.25, atol=0.07, rtol=0)


def test_before_a_linear_layer_it_is_seen_through_that_layers_weights():
    model = Sides()
    found = directions(model, 100, "fc", "first")
    weight = model.fc.weight.detach().double()
    torch.testing.assert_close(found["first"], weight.T @ found["fc"] @ weight, atol=1e-3, rtol=1e-3)


def test_what_moves_no_logit_or_all_equally_counts_nothing():
    found = directions(Sides(), 100, "fc", "nothing", "shift")
    assert found["nothing"].abs().max() < 1e-100
    assert found["shift"].abs().max() < 1e-9 * found["fc"].abs().max()
    assert found["nothing"].shape == (4, 4)


def test_a_layer_that_does_not_run_counts_nothing():
    original = OriginalGraph.of(Sides(), SHAPE)
    original.module.add_module("spare", nn.Conv2d(2, 5, 3))
    root = logit_directions(original, ["spare"], images(4), Silent())["spare"]
    assert torch.equal(root, torch.zeros(5, 5, dtype=torch.float64))


def test_every_direction_counts_a_little():
    root = logit_directions(OriginalGraph.of(Sides(), SHAPE), ["fc"], images(100), Silent())["fc"]
    values = torch.linalg.eigvalsh(root @ root.T)
    assert 0.5 * EPSILON < values[0] / values[-1] < 2 * EPSILON


def test_of_a_convolution_every_position_counts():
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 4))
    found = directions(model, 50, "0", "3")
    weight = model[3].weight.detach().double()
    # Each of the 64 positions has a 64th of the gradient: squares add up to a 64th.
    torch.testing.assert_close(found["0"] * 64, weight.T @ found["3"] @ weight, atol=1e-3, rtol=1e-3)


def test_some_positions_of_a_large_map_stand_for_all():
    layers = [nn.Conv2d(3, 2, 1), nn.Upsample(scale_factor=4), nn.Conv2d(2, 5, 1), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(5, 4))
    found = directions(model, 50, "2", "5")
    weight = model[5].weight.detach().double()
    # As above, with 32 x 32 positions, of which 64 are looked at.
    torch.testing.assert_close(found["2"] * 1024, weight.T @ found["5"] @ weight, atol=1e-3, rtol=1e-3)


def test_weights_get_no_gradients():
    original = OriginalGraph.of(Sides(), SHAPE)
    logit_directions(original, ["fc"], images(4), Silent())
    assert all(parameter.grad is None for parameter in original.module.parameters())


def test_what_an_operation_in_place_writes_over_counts_as_it_was():
    found = []
    for inplace in (True, False):
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 4, 3), nn.ReLU(inplace=inplace), nn.Flatten(), nn.Linear(4 * 36, 3)]
        found.append(directions(nn.Sequential(*layers), 20, "0")["0"])
    torch.testing.assert_close(found[0], found[1])


def test_a_negative_eigenvalue_left_by_rounding_counts_a_little():
    turned, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    wanted = torch.tensor([3.0, 1.0, EPSILON * 10**0.5], dtype=torch.float64)
    left = torch.tensor([3.0, 1.0, -5 * EPSILON], dtype=torch.float64)
    root = square_root(turned * left @ turned.T)
    torch.testing.assert_close(root @ root.T, turned * wanted @ turned.T, atol=1e-12, rtol=0)
