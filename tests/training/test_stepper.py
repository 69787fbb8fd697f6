"""One training step, against SGD with Nesterov momentum computed by hand."""

import copy

import pytest
import torch
from torch import nn

from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.objective import Objective
from catro_deploy.training.stepper import Stepper
from tests.training.helpers import options

IMAGES = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(8) % 3
RATE, MOMENTUM = 0.1, 0.9


def moved(max_grad_norm: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The change that a first step makes to the weights of a linear classifier, and the gradient before it."""
    torch.manual_seed(0)
    model = nn.Linear(12, 3)
    hardware = choose_hardware(model, "cpu", amp=False)
    settings = options(max_grad_norm=max_grad_norm, weight_decay=0.0, momentum=MOMENTUM)
    before = copy.deepcopy(model)
    nn.functional.cross_entropy(before(IMAGES), LABELS).backward()
    Stepper(model, Objective(hardware), settings, hardware).step(IMAGES, LABELS, RATE)
    both = zip(model.parameters(), before.parameters(), strict=True)
    change = torch.cat([(new - old).flatten() for new, old in both])
    return change.detach(), torch.cat([p.grad.flatten() for p in before.parameters()])


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_longer_gradient_is_shortened_to_the_norm_in_its_direction(share):
    _, gradient = moved(0.0)
    norm = share * float(gradient.norm())
    change, _ = moved(norm)
    torch.testing.assert_close(change, -RATE * (1 + MOMENTUM) * share * gradient, rtol=1e-3, atol=1e-7)


def test_a_shorter_one_stays_as_it_is():
    change, gradient = moved(0.0)
    torch.testing.assert_close(change, -RATE * (1 + MOMENTUM) * gradient, rtol=1e-4, atol=1e-7)
    assert torch.equal(moved(1.01 * float(gradient.norm()))[0], change)


class Skipping(nn.Module):
    """Skips its first layer in the first step, as stochastic depth may."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped, self.last, self.steps = nn.Linear(12, 12), nn.Linear(12, 3), 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return self.last(images if self.steps == 1 else self.skipped(images))


def test_a_layer_that_a_step_skips_learns_in_the_next():
    model = Skipping()
    before = copy.deepcopy(model.skipped.weight)
    hardware = choose_hardware(model, "cpu", amp=False)
    stepper = Stepper(model, Objective(hardware), options(momentum=MOMENTUM), hardware)
    stepper.step(IMAGES, LABELS, RATE)
    assert torch.equal(model.skipped.weight, before)
    stepper.step(IMAGES, LABELS, RATE)
    assert not torch.equal(model.skipped.weight, before)
