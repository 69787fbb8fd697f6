"""Choosing channels on networks where the right answer is known."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy.allocation import by_flops
from catro_deploy.core.scatter import Scatter
from catro_deploy.errors import BudgetError
from catro_deploy.graph.depth import drop_branches
from catro_deploy.graph.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.trace import list_layers, trace
from catro_deploy.progress import Silent
from catro_deploy.records import Branch, Budget
from catro_deploy.selection import Scored, choose_channels, score_channels, values_of
from catro_deploy.settings import PruneSettings
from tests.graph.networks import GatedConcat, Residual, randomised


def batches(each: int = 6) -> list[tuple[torch.Tensor, int]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(each, 3, 8, 8, generator=generator) + label, label) for label in range(3)]


def choose(model: nn.Module, budget: str, **settings):
    network = trace(model, (3, 8, 8))
    chosen = PruneSettings(**{"d_min": 1, **settings})
    scored = score_channels(model, network, batches(), chosen, Silent())
    widths = by_flops(network, scored, Budget.parse(budget), chosen).widths
    return network, choose_channels(model, network, scored, widths, batches(), chosen, Silent())


def macs(model: nn.Module) -> int:
    return sum(layer.macs for layer in list_layers(model, (3, 8, 8)))


@pytest.mark.parametrize("budget", ["25%flops", "60%flops", "100%flops"])
@pytest.mark.parametrize("criterion", ["catro", "l1"])
@pytest.mark.parametrize("allocation", ["auto", "greedy", "exact", "uniform"])
def test_the_budget_is_met_and_nearly_used_up(budget, criterion, allocation):
    network, groups = choose(randomised(Residual()), budget, criterion=criterion, allocation=allocation)
    model = randomised(Residual())
    full = macs(model)
    keeps = keeps_of(network.groups, {group.name: group.kept for group in groups}, network.sizes)
    share = macs(apply_keeps_(model, keeps)) / full
    assert share <= Budget.parse(budget).limit(1)
    assert share > Budget.parse(budget).limit(1) - 0.25  # a step of these few channels is up to a quarter of the whole


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


def scored_by_hand() -> Scored:
    """Two groups of known scatters in a network that is not there."""
    network = trace(randomised(Residual()), (3, 8, 8))
    groups = {group.name: group for group in network.groups}
    scatter = Scatter(np.array([4.0, 1.0, 2.0, 3.0, 0.5, 0.1]), np.ones(6))
    inner = Scatter(scatter.between[:5], scatter.within[:5])
    return Scored((groups["stem"], groups["inner"]), {"stem": scatter, "inner": inner}, {}, {})


def test_a_group_of_several_producers_gains_once_for_each():
    settings = PruneSettings(d_min=1)
    stem, inner = values_of(scored_by_hand(), {"stem": (1, 2, 3), "inner": (1, 2, 3)}, settings)
    assert (stem.choice.members, inner.choice.members) == (2, 1)  # stem and outer make one stream
    assert stem.value[0] == inner.value[0] == 0
    assert (np.diff(stem.value) > 0).all()


def test_a_branch_gains_its_worth_when_it_comes_into_being():
    settings = PruneSettings(d_min=1)
    candidates = {"stem": (2, 6), "inner": (2, 5)}
    without = values_of(scored_by_hand(), candidates, settings)
    stem, inner = values_of(scored_by_hand(), candidates, settings, {Branch("outer", ("inner",)): 0.75})
    assert stem.choice.widths == (2, 6)
    assert inner.choice.widths == (0, 2, 5)
    assert inner.value == pytest.approx([0.0, 0.75, 0.75 + without[1].value[1]])
    np.testing.assert_array_equal(stem.value, without[0].value)


def test_the_worth_of_a_branch_is_shared_among_its_groups():
    candidates = {"stem": (2, 6), "inner": (2, 5)}
    worths = {Branch("both", ("stem", "inner")): 1.0}
    values = values_of(scored_by_hand(), candidates, PruneSettings(d_min=1), worths)
    assert [group.value[1] for group in values] == [0.5, 0.5]


def test_what_is_gone_needs_no_widths():
    whole, settings = randomised(Residual()), PruneSettings(d_min=1)
    model = drop_branches(whole, ["outer"])
    rest = trace(whole, (3, 8, 8)).without({"inner", "inner_bn", "outer"})
    scored = score_channels(model, rest, batches(), settings, Silent())
    groups = choose_channels(model, rest, scored, {"stem": 4, "down": 5}, batches(), settings, Silent())
    assert {group.name: len(group.kept) for group in groups} == {"stem": 4, "down": 5, "fc": 4}
    assert groups[0].producers == ("stem",)
