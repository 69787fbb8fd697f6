"""A changed graph trains and evaluates as the module does; what a graph cannot express is refused."""

import copy

import pytest
import torch

from catro_deploy.errors import ModelError
from catro_deploy.graph.fx.depth import drop_branches
from tests.graph.networks import randomised
from tests.graph.residual import Written, assert_same, found, images, lively, muted


class ByMode(Written):
    """Control flow that follows the mode, which a graph cannot express."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * 2 if self.training else x)


class ByData(Written):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if x.sum() > 0 else -x)


class ByChance(Written):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * float(1 + 1e-6 * torch.rand(())))


class WithMasks(Written):
    def forward(self, x: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (ByMode, "in training"),
        (ByData, r"test_symbolic\.py:\d+"),
        (ByChance, "random"),
        (WithMasks, "more than"),
    ],
)
def test_without_a_faithful_graph_there_are_no_branches(factory, reason):
    assert found(randomised(factory())) == ()
    with pytest.raises(ModelError, match=reason):
        drop_branches(factory(), ["outer0"])


class Rewriting(Written):
    """The stream is changed in place under another name, which a trace does not record."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        same = x
        x *= 2
        return super().forward(same)


def test_a_graph_that_computes_something_else_has_no_branches():
    assert found(randomised(Rewriting())) == ()


class Constants(Written):
    """Tensors that are not parameters: a plain attribute, a non-persistent buffer, one made in the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = torch.tensor([0.5, 1.0, 2.0]).view(3, 1, 1)
        self.register_buffer("shift", torch.ones(3, 1, 1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward((x - self.shift) * self.plain + torch.tensor(0.25))


def test_constants_do_not_become_weights():
    model = randomised(Constants())
    dropped = assert_same(model, found(model)[:1], 8)
    assert set(copy.deepcopy(dropped).state_dict()) == set(dropped.state_dict())


def test_training_is_that_of_the_whole_network():
    model = randomised(Written()).train()
    branches = found(model)[:1]
    dropped, reference = drop_branches(model.train(), ["outer0"]), muted(model, branches)
    outcomes = []
    for network in (dropped, reference):
        torch.manual_seed(3)
        out = network(images())
        out.square().sum().backward()
        outcomes.append((out, dict(network.named_parameters()), dict(network.named_buffers())))
    (out, weights, statistics), (expected, their_weights, their_statistics) = outcomes
    torch.testing.assert_close(out, expected)
    for name, weight in weights.items():
        torch.testing.assert_close(weight.grad, their_weights[name].grad, rtol=1e-4, atol=1e-4)
    for name, buffer in statistics.items():
        torch.testing.assert_close(buffer, their_statistics[name])
    assert not torch.equal(statistics["norm1.running_mean"], model.norm1.running_mean)


def test_dropout_follows_the_mode():
    dropped = drop_branches(randomised(Written()), ["outer0"])
    for network in (dropped, copy.deepcopy(dropped), drop_branches(dropped, ["outer3"])):
        assert torch.equal(network.eval()(images()), network(images()))
        network.train()
        assert not torch.equal(network(images()), network(images()))


def test_stochastic_depth_follows_the_mode():
    model = lively("torchvision:efficientnet_b0")
    dropped = drop_branches(model, ["features.3.1.block.3.0"])
    dropped.get_submodule("classifier.0").p = 0.0  # leaves only the depth to chance
    assert torch.equal(dropped(images(32)), dropped(images(32)))
    dropped.train()
    assert not torch.equal(dropped(images(32)), dropped(images(32)))
