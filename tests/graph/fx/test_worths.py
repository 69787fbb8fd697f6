"""The worth of a branch: by hand, by hooks, and zero if it adds nothing."""

import math

import pytest
import torch
from torch import nn

from catro_deploy.catro.scatter import ScatterMeter
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.graph.fx.worths import branch_worths
from tests.graph.networks import randomised
from tests.graph.residual import Written, lively


def batches(classes: int = 3, size: int = 16) -> list[tuple[torch.Tensor, int]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(6, 3, size, size, generator=generator) + label, label) for label in range(classes)]


def test_a_branch_that_adds_nothing_is_worth_nothing():
    model = lively("cifar_resnet20")
    network = trace(model, (3, 32, 32))
    branches = find_branches(model, network)
    for silent in ("layer1.1.bn2", "layer2.0.bn2"):
        norm = model.get_submodule(silent)
        nn.init.zeros_(norm.weight)
        nn.init.zeros_(norm.bias)
    worths = branch_worths(model, network, branches, batches())
    assert list(worths) == [branch.name for branch in branches]
    assert worths["layer1.1.conv2"] == worths["layer2.0.conv2"] == 0
    assert all(0 <= worth < math.inf for worth in worths.values())
    assert max(worths.values()) > 0
    assert branch_worths(model, network, [], batches()) == {}


@pytest.mark.parametrize("block", ["layer1.1", "layer2.0", "layer3.2"])
def test_worth_is_that_of_the_stream_after_against_before(block):
    model = lively("cifar_resnet20", seed=2)
    network = trace(model, (3, 32, 32))
    branches = find_branches(model, network)
    meters = [ScatterMeter("before"), ScatterMeter("after")]
    seen: list[torch.Tensor] = []
    module = model.get_submodule(block)
    beside = module.downsample or nn.Identity()
    module.register_forward_hook(lambda *call: seen.extend((torch.relu(beside(call[1][0])), call[2])))
    with torch.inference_mode():
        for batch, label in batches():
            model(batch)
            meters[1].add(seen.pop(), label)
            meters[0].add(seen.pop(), label)
    before, after = (s.between.sum() / s.within.sum() for s in (meter.scatter() for meter in meters))
    for hook in list(module._forward_hooks):
        del module._forward_hooks[hook]
    worth = branch_worths(model, network, branches, batches())[f"{block}.conv2"]
    assert worth == pytest.approx(max(0, math.log(after / before)), rel=1e-3, abs=1e-6)


def test_activations_in_place_do_not_disturb_what_is_measured():
    model = randomised(Written())
    network = trace(model, (3, 16, 16))
    branches = find_branches(model, network)
    in_place = branch_worths(model, network, branches, batches())
    model.swish.inplace = False
    assert in_place == pytest.approx(branch_worths(model, network, branches, batches()), rel=1e-5)
    assert max(in_place.values()) > 0


class Amplifier(nn.Module):
    """A stream of two channels; the branch adds each channel, multiplied by its gain, to itself."""

    def __init__(self, gains: tuple[float, float]) -> None:
        super().__init__()
        self.stem, self.inner, self.outer = (nn.Conv2d(2, 2, 1, bias=False) for _ in range(3))
        self.fc = nn.Linear(2, 2)
        with torch.no_grad():
            for conv, diagonal in ((self.stem, (1, 1)), (self.inner, (1, 1)), (self.outer, gains)):
                conv.weight.copy_(torch.diag(torch.tensor(diagonal, dtype=torch.float32)).view(2, 2, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.fc(torch.relu(x + self.outer(torch.relu(self.inner(x)))).mean((2, 3)))


@pytest.mark.parametrize(("gains", "adds"), [((0.0, 9.0), True), ((9.0, 0.0), False)])
def test_worth_by_hand(gains, adds):
    # Channel 0 is the same for both classes, channel 1 tells them apart. All is positive, so ReLU changes nothing.
    # Each class deviates by +-1 in each channel: within = 4. Its means in channel 1 are 4 and 6: between = 4 there.
    values = {0: [(2, 3), (4, 5)], 1: [(2, 5), (4, 7)]}
    batches = [(torch.tensor(pairs, dtype=torch.float32).view(2, 2, 1, 1), label) for label, pairs in values.items()]
    model = Amplifier(gains)
    network = trace(model, (2, 1, 1))
    branches = find_branches(model, network)
    assert [branch.name for branch in branches] == ["outer"]
    before, after = 4 / (4 + 4), 400 / (4 + 400) if adds else 4 / (400 + 4)
    expected = math.log(after / before) if adds else 0.0
    assert branch_worths(model, network, branches, batches)["outer"] == pytest.approx(expected, rel=1e-5)


def test_a_stream_of_zeros_has_a_finite_worth():
    model = Amplifier((1.0, 1.0))
    nn.init.zeros_(model.stem.weight)
    model.outer.bias = nn.Parameter(torch.zeros(2))
    network = trace(model, (2, 1, 1))
    branch = find_branches(model, network)
    data = [(torch.rand(4, 2, 1, 1), label) for label in range(2)]
    assert branch_worths(model, network, branch, data) == {"outer": 0.0}  # all zeros before and after
