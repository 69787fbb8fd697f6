"""Which networks have the same structure."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from catro_deploy.graph.structure import structure
from tests.graph.networks import Branches, Residual, randomised

SHAPE = (3, 8, 8)


class Small(nn.Module):
    """Always the same modules, with the given forward."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.fc = nn.Linear(4, 3)
        self.given = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.given(self, x).mean((2, 3)))


FORWARDS = {
    "relu": lambda net, x: torch.relu(net.two(torch.relu(net.one(x)))),
    "other activation": lambda net, x: functional.silu(net.two(torch.relu(net.one(x)))),
    "other place": lambda net, x: net.two(torch.relu(torch.relu(net.one(x)))),
    "other slope": lambda net, x: functional.leaky_relu(net.two(functional.leaky_relu(net.one(x), 0.1)), 0.1),
    "slope": lambda net, x: functional.leaky_relu(net.two(functional.leaky_relu(net.one(x), 0.2)), 0.1),
    "identity": lambda net, x: net.one(x) + torch.relu(net.two(torch.relu(net.one(x)))),
    "twice": lambda net, x: torch.relu(net.two(net.two(torch.relu(net.one(x))))),
    "pooled": lambda net, x: functional.max_pool2d(net.two(torch.relu(net.one(x))), 2),
    "pooled apart": lambda net, x: functional.max_pool2d(net.two(torch.relu(net.one(x))), 2, stride=1),
    "cut": lambda net, x: net.two(torch.relu(net.one(x)))[:, :, :4],
    "cut elsewhere": lambda net, x: net.two(torch.relu(net.one(x)))[:, :, 4:],
}


def test_whatever_differs_in_the_forward_alone_shows():
    found = {name: structure(Small(forward).eval(), SHAPE) for name, forward in FORWARDS.items()}
    assert len(set(found.values())) == len(FORWARDS)


def test_which_of_two_equal_tensors_is_read_shows():
    """Both networks add tensors of the same shape; the second adds a different one."""
    first = Small(lambda net, x: (lambda a: (lambda b: net.two(b) + a)(torch.relu(a)))(net.one(x)))
    second = Small(lambda net, x: (lambda a: (lambda b: net.two(b) + b)(torch.relu(a)))(net.one(x)))
    assert structure(first.eval(), SHAPE) != structure(second.eval(), SHAPE)


@pytest.mark.parametrize("make", [Residual, Branches])
def test_weights_and_copies_do_not_show(make):
    model = randomised(make())
    expected = structure(model, SHAPE)
    assert structure(randomised(make(), seed=1), SHAPE) == expected
    assert structure(copy.deepcopy(model), SHAPE) == expected
    assert structure(model, SHAPE) == expected


def test_the_image_shows():
    assert structure(randomised(Residual()), SHAPE) != structure(randomised(Residual()), (3, 16, 16))
