"""Choosing channels on networks where the right answer is known."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy.catro.scatter import Scatter
from catro_deploy.errors import BudgetError
from catro_deploy.graph.coupling.trace import list_layers, trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.fx.depth import drop_branches
from catro_deploy.progress import Silent
from catro_deploy.pruning.allocation import by_flops
from catro_deploy.pruning.scoring import Scored, score_channels
from catro_deploy.pruning.selection import choose_channels, values_of
from catro_deploy.pruning.solvers import Problem
from catro_deploy.records import Branch, Budget
from catro_deploy.settings import PruneSettings
from tests.graph.networks import GatedConcat, Residual, randomised
from tests.graph.user_networks import LayerNormed, Starred
from tests.pruning.samples import batches
from tests.tiny import Blocks


def choose(model: nn.Module, budget: str, **settings):
    network = trace(model, (3, 8, 8))
    chosen = PruneSettings(**{"d_min": 1, **settings}, budget=budget)
    scored = score_channels(model, network, batches(), chosen, Silent())
    widths = by_flops(Problem(network, scored, chosen)).widths
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
    assert share > Budget.parse(budget).limit(1) - 0.25  # with so few channels, a step is up to a quarter of the whole


def test_the_channels_that_separate_the_classes_are_kept():
    # The classes differ in brightness. Filters 1 and 4 sum up the pixels; the others see differences only.
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
    network, groups = choose(randomised(GatedConcat(), seed), "20%flops", criterion=criterion)
    keeps = keeps_of(network.groups, {group.name: group.kept for group in groups}, network.sizes)
    model = apply_keeps_(randomised(GatedConcat(), seed), keeps)
    assert model(torch.randn(2, 3, 8, 8)).isfinite().all()


class Added(nn.Module):
    """Two convolutions whose maps are added, and a third whose map is concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.third = (nn.Conv2d(3, 4, 3, bias=False) for _ in range(3))
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stream = torch.relu(self.one(x)) + torch.relu(self.other(x))
        return self.fc(torch.cat([stream, torch.relu(self.third(x))], 1).mean((2, 3)))


def bright_filters(separating: list[int], seed: int, scale: float = 1.0) -> torch.Tensor:
    """Four filters: those in ``separating`` sum up the pixels, the others see differences only."""
    weight = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(seed))
    weight -= weight.mean((1, 2, 3), keepdim=True)
    weight[separating] = 0.3
    return weight * scale


def test_a_member_with_large_activations_does_not_dominate_the_others():
    # The classes differ in brightness; each member sees it in a different channel. With equal weight, both
    # channels stay at any scale; if raw scatters were added, a noisy channel of the large member would beat the small
    # member's.
    kept = []
    for scale in (1.0, 1000.0):
        model = Added().eval()
        with torch.no_grad():
            model.one.weight.copy_(bright_filters([1], seed=3))
            model.other.weight.copy_(bright_filters([2], seed=4, scale=scale))
        network = trace(model, (3, 8, 8))
        settings = PruneSettings(d_min=1, ridge=0.0)
        scored = score_channels(model, network, batches(), settings, Silent())
        widths = {group.name: 2 if group.name == "one" else group.width for group in network.groups}
        groups = choose_channels(model, network, scored, widths, batches(), settings, Silent())
        kept.append({group.name: group.kept for group in groups}["one"])
        np.testing.assert_allclose(scored.scatters["one"].mean_total, 2)  # one for each member
    assert kept == [(1, 2), (1, 2)]


def test_members_of_a_concatenation_are_chosen_from_by_their_own_indices():
    model = Added().eval()
    with torch.no_grad():
        model.one.weight.copy_(bright_filters([1], seed=3))
        model.other.weight.copy_(bright_filters([1], seed=4))
        model.third.weight.copy_(bright_filters([3], seed=5))
    network = trace(model, (3, 8, 8))
    settings = PruneSettings(d_min=1, ridge=0.0)
    scored = score_channels(model, network, batches(), settings, Silent())
    groups = choose_channels(model, network, scored, {"one": 1, "third": 1}, batches(), settings, Silent())
    assert {group.name: group.kept for group in groups if not group.fixed} == {"one": (1,), "third": (3,)}
    keeps = keeps_of(network.groups, {group.name: group.kept for group in groups}, network.sizes)
    assert keeps["fc"].inputs == (1, 7)


@pytest.mark.parametrize("criterion", ["catro", "l1"])
def test_several_indices_of_one_channel_add_up(criterion):
    # Groups of two filters stay or go as a whole. The second pair sees the brightness, and has the largest filters.
    model = nn.Sequential(nn.Conv2d(3, 6, 1, bias=False), nn.Conv2d(6, 6, 3, groups=3, bias=False), nn.ReLU())
    model = nn.Sequential(*model, nn.Flatten(), nn.Linear(6 * 36, 3)).eval()
    with torch.no_grad():
        model[0].weight.normal_(generator=torch.Generator().manual_seed(3))
        model[0].weight.sub_(model[0].weight.mean(1, keepdim=True))
        model[0].weight[2:4] = 3.0
        model[1].weight.normal_(generator=torch.Generator().manual_seed(3))
        model[1].weight[2:4] = 3.0
    network = trace(model, (3, 8, 8))
    settings = PruneSettings(d_min=1, ridge=0.0, criterion=criterion)
    scored = score_channels(model, network, batches(), settings, Silent())
    groups = choose_channels(model, network, scored, {"0": 1}, batches(), settings, Silent())
    assert groups[0].width == 3
    assert groups[0].kept == (1,)


def test_l1_of_a_transposed_convolution():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(4, 4, 2, 2, groups=1), nn.Flatten(), nn.Linear(1024, 3)
    )
    with torch.no_grad():
        model[1].weight.copy_(torch.ones(4, 4, 2, 2) * torch.tensor([1.0, 4.0, 2.0, 3.0]).view(1, 4, 1, 1))
    network = trace(model.eval(), (3, 8, 8))
    settings = PruneSettings(d_min=1, criterion="l1")
    scored = score_channels(model, network, batches(), settings, Silent())
    groups = choose_channels(model, network, scored, {"0": 4, "1": 2}, batches(), settings, Silent())
    assert groups[1].kept == (1, 3)


def test_channels_of_a_linear_layer_on_a_map_are_last():
    model = randomised(LayerNormed())
    network, groups = choose(model, "70%flops")
    kept = {group.name: group.kept for group in groups}
    assert 0 < len(kept["up"]) < 16
    keeps = keeps_of(network.groups, kept, network.sizes)
    assert apply_keeps_(model, keeps)(torch.randn(2, 3, 8, 8)).shape == (2, 4)


def test_members_that_run_before_the_first_is_activated_are_cut_as_well():
    model = randomised(Starred())
    network, groups = choose(model, "60%flops", max_width=0.5)
    kept = {group.name: group.kept for group in groups}
    assert len(kept["one"]) < 12
    keeps = keeps_of(network.groups, kept, network.sizes)
    assert apply_keeps_(model, keeps)(torch.randn(2, 3, 8, 8)).shape == (2, 4)


def test_a_budget_that_cannot_be_met():
    with pytest.raises(BudgetError, match=r"\b0\.5%flops\b") as caught:
        choose(randomised(Residual()), "0.5%flops", d_min=3)
    assert "--d-min, now 3" in caught.value.hint
    assert "--prune-first" not in caught.value.hint  # it is pruned already
    with pytest.raises(BudgetError) as caught:
        choose(randomised(Residual()), "0.5%flops", d_min=3, prune_first=False)
    assert "--prune-first" in caught.value.hint
    with pytest.raises(BudgetError, match="No channels"):
        choose(randomised(Residual()), "50%flops", d_min=40)


def scored_by_hand() -> Scored:
    """Two groups of a network, with scatters made by hand."""
    network = trace(randomised(Residual()), (3, 8, 8))
    groups = {group.name: group for group in network.groups}
    scatter = Scatter(np.array([4.0, 1.0, 2.0, 3.0, 0.5, 0.1]), np.ones(6))
    inner = Scatter(scatter.between[:5], scatter.within[:5])
    return Scored((groups["stem"], groups["inner"]), {"stem": scatter, "inner": inner}, {}, {})


def test_a_group_of_several_producers_gains_once_for_each():
    settings = PruneSettings(d_min=1)
    stem, inner = values_of(scored_by_hand(), {"stem": (1, 2, 3), "inner": (1, 2, 3)}, settings)
    assert (stem.choice.members, inner.choice.members) == (2, 1)  # stem and outer write to one stream
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


def test_removed_groups_need_no_widths():
    whole, settings = randomised(Residual()), PruneSettings(d_min=1)
    model = drop_branches(whole, ["outer"])
    rest = trace(whole, (3, 8, 8)).without({"inner", "inner_bn", "outer"})
    scored = score_channels(model, rest, batches(), settings, Silent())
    groups = choose_channels(model, rest, scored, {"stem": 4, "down": 5}, batches(), settings, Silent())
    assert {group.name: len(group.kept) for group in groups} == {"stem": 4, "down": 5, "fc": 4}
    assert groups[0].producers == ("stem",)


def test_a_group_that_a_removed_branch_had_silenced_stays_whole():
    torch.manual_seed(0)
    model = Blocks(3).eval()
    with torch.no_grad():
        model.one_out.bias.fill_(-1e6)  # everything after it is constant
    network, settings = trace(model, (3, 8, 8)), PruneSettings()
    first = score_channels(model, network, batches(), settings, Silent())
    assert "two_in" not in {group.name for group in first.prunable}
    shallow = drop_branches(model, ["one_out"], [], network.sizes).eval()
    rest = network.without({"one_in", "one_bn", "one_out"})
    again = score_channels(shallow, rest, batches(), settings, Silent())
    assert "two_in" in {group.name for group in again.prunable}
    widths = {group.name: group.width // 2 for group in first.prunable}
    groups = choose_channels(shallow, rest, again.keeping(first), widths, batches(), settings, Silent())
    (two,) = [group for group in groups if group.name == "two_in"]
    assert (len(two.kept), two.fixed) == (48, first.fixed["two_in"])
