"""Choosing channels on networks where the right answer is known."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy.core.scatter import Scatter
from catro_deploy.errors import BudgetError
from catro_deploy.graph.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.trace import list_layers, trace
from catro_deploy.progress import Silent
from catro_deploy.records import Budget
from catro_deploy.selection import choose_channels
from catro_deploy.settings import PruneSettings
from tests.graph.networks import GatedConcat, Residual, randomised


def batches(each: int = 6) -> list[tuple[torch.Tensor, int]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(each, 3, 8, 8, generator=generator) + label, label) for label in range(3)]


def choose(model: nn.Module, budget: str, **settings):
    network = trace(model, (3, 8, 8))
    chosen = PruneSettings(**{"d_min": 1, **settings})
    return network, choose_channels(model, network, batches(), Budget.parse(budget), chosen, Silent())


def macs(model: nn.Module) -> int:
    return sum(layer.macs for layer in list_layers(model, (3, 8, 8)))


@pytest.mark.parametrize("budget", ["25%flops", "60%flops", "100%flops"])
@pytest.mark.parametrize("criterion", ["catro", "l1"])
@pytest.mark.parametrize("allocation", ["greedy", "uniform"])
def test_the_budget_is_met_and_nearly_used_up(budget, criterion, allocation):
    network, groups = choose(randomised(Residual()), budget, criterion=criterion, allocation=allocation)
    model = randomised(Residual())
    full = macs(model)
    keeps = keeps_of(network.groups, {group.name: group.kept for group in groups}, network.sizes)
    share = macs(apply_keeps_(model, keeps)) / full
    assert share <= Budget.parse(budget).fraction
    assert share > Budget.parse(budget).fraction - 0.25  # a step of these few channels is up to a quarter of the whole


def test_the_channels_that_separate_the_classes_are_kept():
    # The classes differ in brightness. Filters 1 and 4 sum the pixels up; the others see differences only.
    model = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.Flatten(), nn.Linear(6 * 36, 3)).eval()
    with torch.no_grad():
        model[0].weight.normal_(generator=torch.Generator().manual_seed(3))
        model[0].weight.sub_(model[0].weight.mean((1, 2, 3), keepdim=True))
        model[0].weight[[1, 4]] = 0.3
    _, groups = choose(model, "34%flops", ridge=0.0)
    assert groups[0].kept == (1, 4)
    assert groups[0].trace_ratio is not None
    assert groups[0].trace_ratio > 1


def test_l1_keeps_the_largest_filters():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0)).sign())
        model[0].weight.mul_(torch.tensor([1.0, 4.0, 2.0, 3.0]).view(4, 1, 1, 1))
    _, groups = choose(model, "50%flops", criterion="l1")
    assert groups[0].kept == (1, 3)
    assert groups[0].trace_ratio is None


def test_caps_and_the_first_convolution():
    _, groups = choose(randomised(Residual()), "90%flops", max_width=0.5)
    assert all(len(group.kept) <= max(1, math.floor(group.width / 2)) for group in groups if not group.fixed)
    _, groups = choose(randomised(Residual()), "80%flops", prune_first=False)
    assert groups[0].fixed == "the first convolution is not to be pruned"
    assert len(groups[0].kept) == groups[0].width


def test_the_same_seed_gives_the_same_channels():
    one, other = (choose(randomised(Residual()), "50%flops", seed=4)[1] for _ in range(2))
    assert one == other


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("criterion", ["catro", "l1"])
def test_no_branch_of_a_coupled_concatenation_is_left_empty(seed, criterion):
    network, groups = choose(randomised(GatedConcat(), seed), "10%flops", criterion=criterion)
    keeps = keeps_of(network.groups, {group.name: group.kept for group in groups}, network.sizes)
    model = apply_keeps_(randomised(GatedConcat(), seed), keeps)
    assert model(torch.randn(2, 3, 8, 8)).isfinite().all()


def test_a_member_with_large_activations_does_not_drown_the_others():
    between, within = np.array([1.0, 4.0]), np.array([2.0, 1.0])
    small, large = Scatter(between, within), Scatter(1e6 * between[::-1], 1e6 * within[::-1])
    total = small.normalised().between + large.normalised().between
    assert total[0] == pytest.approx(total[1])


def test_a_budget_that_cannot_be_met():
    with pytest.raises(BudgetError, match="smallest network"):
        choose(randomised(Residual()), "0.5%flops", d_min=3)
    with pytest.raises(BudgetError, match="No channels"):
        choose(randomised(Residual()), "50%flops", d_min=40)
