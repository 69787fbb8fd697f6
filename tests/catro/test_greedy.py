"""Algorithm 2 on examples computed by hand, and its properties on random networks."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.catro.gains import GroupChoice, GroupValue, group_value
from catro_deploy.catro.greedy import greedy
from catro_deploy.catro.scatter import Scatter
from catro_deploy.catro.trace_ratio import ratio_curve, scores
from catro_deploy.errors import BudgetError
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.records import Branch, Group, Layer, Slot
from tests.catro.networks import Drawn, networks
from tests.catro.tables import TableCost, narrower_than_it_could_be, possible, valued, worth


def priced(values: list[GroupValue], **prices: float) -> TableCost:
    """A cost with a fixed price per channel of each group, as if groups never met in a layer."""
    candidates = {group.choice.name: group.choice.widths for group in values}
    return TableCost(candidates, {name: np.array(widths) * prices[name] for name, widths in candidates.items()})


def gains(name: str, smallest: int, *steps: float) -> GroupValue:
    return GroupValue(GroupChoice(name, tuple(range(smallest, smallest + len(steps) + 1))), np.cumsum([0.0, *steps]))


@pytest.mark.parametrize("only_next", [True, False])
def test_three_layers_by_hand(only_next):
    # All start at 1 channel: 1 + 2 + 4 = 7 of 12. Gain per cost: a 0.5, b 0.9 / 2 = 0.45, c 0.8 / 4 = 0.2.
    # a to 2 (8 spent; then a is 0.3), b to 2 (10; then 0.1), a to 3 (11, its largest); c would need 15, b 13.
    # Two channels at once are no better anywhere: a 0.8 / 2, b 1.1 / 4, c 1.5 / 8.
    layers = [gains("a", 1, 0.5, 0.3), gains("b", 1, 0.9, 0.2), gains("c", 1, 0.8, 0.7)]
    cost = priced(layers, a=1, b=2, c=4)
    steps = []
    found = greedy(layers, cost, 12, only_next=only_next, on_step=steps.append)
    assert found.widths == {"a": 3, "b": 2, "c": 1}
    assert steps == [{"a": 2}, {"b": 2}, {"a": 3}]
    assert (found.value, found.cost, found.gap) == (pytest.approx(0.8 + 0.9), 3 + 4 + 4, None)
    # With a budget of 15, c's step comes before b's second, since 0.2 is more than 0.1.
    assert greedy(layers, cost, 15, only_next=only_next).widths == {"a": 3, "b": 2, "c": 2}


def test_a_cost_that_neighbours_share_is_seen():
    # a and b meet in one layer: its cost is the product of their widths; c is separate, at 3 per channel.
    # From (1, 1, 1) = 4: a costs 1 (worth 1.0); then b costs 2 (worth 0.9 / 2) and c 3 (worth 1.5 / 3): c, to 8.
    layers = [gains("a", 1, 1.0), gains("b", 1, 0.9), gains("c", 1, 1.5)]
    cost = TableCost({"a": (1, 2), "b": (1, 2), "c": (1, 2)}, {"c": [3, 6]}, {("a", "b"): [[1, 2], [2, 4]]})
    assert greedy(layers, cost, 8).widths == {"a": 2, "b": 1, "c": 2}


def test_a_step_over_several_channels_stops_at_the_largest():
    layers = valued(a={1: 0.0, 4: 0.9, 6: 1.5})
    assert greedy(layers, priced(layers, a=1), 5, only_next=True).widths == {"a": 4}
    assert greedy(layers, priced(layers, a=1), 6, only_next=True).widths == {"a": 6}


def test_a_cliff_is_stepped_over():
    # 15 channels cost more than 16. From 8 the best gain per cost leads to 16 at once; one step at a time leads to 15.
    values = valued(a={8: 0.0, 15: 1.0, 16: 1.1})
    cost = TableCost({"a": (8, 15, 16)}, {"a": [300, 954, 547]})
    assert greedy(values, cost, 600).widths == {"a": 16}
    assert greedy(values, cost, 600, only_next=True).widths == {"a": 8}
    # Even where only 15 gains something, 16 is taken, since it costs less.
    assert greedy(valued(a={8: 0.0, 15: 1.0, 16: 1.0}), cost, 1000).widths == {"a": 16}


def test_the_smallest_width_may_cost_more_than_the_budget_if_a_wider_one_does_not():
    values = valued(a={15: 0.0, 16: 0.0, 32: 1.0})
    assert greedy(values, TableCost({"a": (15, 16, 32)}, {"a": [954, 547, 1705]}), 600).widths == {"a": 16}


def test_of_steps_that_cost_nothing_the_widest_comes_first():
    values = valued(a={1: 0.0, 2: 5.0, 3: 5.1, 4: 9.0})
    assert greedy(values, TableCost({"a": (1, 2, 3, 4)}, {"a": [7, 7, 6, 9]}), 7).widths == {"a": 3}


def test_a_budget_below_the_smallest_network_says_what_that_costs():
    layers = [gains("a", 3, 1.0)]
    with pytest.raises(BudgetError, match=r"(?s)\b30\b.*\b29\b.*d-min"):
        greedy(layers, priced(layers, a=10), 29)


def test_the_worthless_branch_goes_first():
    # Each branch costs 10; the budget has room for one of them.
    values = valued(stream={4: 0.0}, idle={0: 0.0, 2: 0.0, 4: 0.0}, useful={0: 0.0, 2: 1.0, 4: 1.5})
    branches = [Branch("first", ("idle",)), Branch("second", ("useful",))]
    cost = priced(values, stream=1, idle=2.5, useful=2.5)
    assert greedy(values, cost, 14, branches).widths == {"stream": 4, "idle": 0, "useful": 4}
    assert greedy(values, cost, 24, branches).widths == {"stream": 4, "idle": 4, "useful": 4}


@pytest.mark.parametrize("only_next", [True, False])
def test_the_groups_of_a_branch_come_together(only_next):
    # The branch needs 2 * 1 + 3 * 1 = 5 at its first widths; one of its groups alone would fit into 4.
    values = valued(one={0: 0.0, 2: 3.0}, two={0: 0.0, 3: 3.0}, other={1: 0.0, 2: 0.1})
    branches, cost = [Branch("block", ("one", "two"))], priced(values, one=1, two=1, other=1)
    assert greedy(values, cost, 5, branches, only_next=only_next).widths == {"one": 0, "two": 0, "other": 2}
    assert greedy(values, cost, 6, branches, only_next=only_next).widths == {"one": 2, "two": 3, "other": 1}


def test_a_branch_may_come_in_at_the_foot_of_a_stair():
    # Its first widths are slower than its second ones, and do not fit.
    values = valued(one={0: 0.0, 15: 1.0, 16: 1.1}, two={0: 0.0, 8: 1.0})
    cost = TableCost({"one": (0, 15, 16), "two": (0, 8)}, {}, {("one", "two"): [[0, 0], [0, 954], [0, 547]]})
    assert greedy(values, cost, 600, [Branch("block", ("one", "two"))]).widths == {"one": 16, "two": 8}


@pytest.mark.parametrize("branches", [[], [Branch("b", ("a", "missing"))], [Branch("b", ("a",)), Branch("c", ("a",))]])
def test_what_may_be_removed_is_in_one_branch(branches):
    values = valued(a={0: 0.0, 2: 1.0}, b={1: 0.0})
    with pytest.raises(ValueError, match="candidate 0"):
        greedy(values, priced(values, a=1, b=1), 5, branches)


def test_gains_too_small_for_the_sum_still_come_in_order():
    # Beside the first gain of 1, both others are lost in float64; b's is e^10 times a's, at the same cost.
    a, b = (
        GroupValue(GroupChoice(name, (1, 2, 3)), np.array([0.0, 1.0, 1.0]), np.array([0.0, log_gain]))
        for name, log_gain in (("a", -60.0), ("b", -50.0))
    )
    assert greedy([a, b], priced([a, b], a=1, b=1), 5).widths == {"a": 2, "b": 3}


@settings(max_examples=80, deadline=None)
@given(network=networks(), only_next=st.booleans())
def test_random_networks_are_within_budget_and_no_group_could_be_wider(network: Drawn, only_next):
    values, cost, budget, branches = network.values, network.cost, network.budget, network.branches
    try:
        found = greedy(values, cost, budget, branches, only_next=only_next)
    except BudgetError:
        start = {group.choice.name: group.choice.widths[0] for group in values}
        assert cost.predict(start) > budget
        return
    assert found.widths in possible(values, branches)
    assert found.cost == cost.predict(found.widths) <= budget
    assert found.value == pytest.approx(worth(values, found.widths))
    if not only_next:
        assert narrower_than_it_could_be(values, cost, budget, found.widths) == []


def plain_algorithm_2(
    scatters: Mapping[str, Scatter], members: Mapping[str, int], cost: FlopsCost, budget: float, step: int
) -> dict[str, int]:
    """The paper's steps 1 to 3, literally: no logarithms, no bookkeeping, everything recomputed."""
    widths = {name: min(3, len(scatter.between)) for name, scatter in scatters.items()}
    while True:
        worth = {}
        for name, scatter in scatters.items():
            now = widths[name]
            then = min(now + step, len(scatter.between))
            added = cost.predict({**widths, name: then}) - cost.predict(widths)
            if then > now and cost.predict(widths) + added <= budget:
                s = sorted(np.exp(scores(scatter, ratio_curve(scatter, 0.0)[now - 1], 1.0)), reverse=True)
                worth[name] = members[name] * sum(s[now:then]) / sum(s[:now]) / added
        if not worth:
            return widths
        name = max(worth, key=worth.__getitem__)
        widths[name] = min(widths[name] + step, len(scatters[name].between))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 9), min_size=2, max_size=4),
    step=st.integers(1, 3),
    share=st.floats(0.3, 1.0),
    seed=st.integers(0, 10**6),
)
def test_candidate_after_candidate_is_the_papers_algorithm_2(sizes, step, share, seed):
    # A chain of 3x3 convolutions; its groups have 1, 2, 3 ... members.
    generator = np.random.default_rng(seed)
    names = [f"conv{place}" for place in range(len(sizes))]
    layers = [
        Layer(name, 16, 9, inputs, outputs)
        for name, inputs, outputs in zip(names, [3, *sizes[:-1]], sizes, strict=True)
    ]
    groups = []
    for place, (name, size) in enumerate(zip(names, sizes, strict=True)):
        every = tuple(range(size))
        readers = [Slot(reader, "in", every, every) for reader in names[place + 1 : place + 2]]
        groups.append(Group(name, size, (Slot(name, "out", every, every), *readers), (name,)))
    members = {name: place + 1 for place, name in enumerate(names)}
    scatters = {
        name: Scatter(generator.gamma(1, 1, size), generator.gamma(3, 1, size) + 0.1)
        for name, size in zip(names, sizes, strict=True)
    }
    cost = FlopsCost(layers, groups)
    smallest = {name: min(3, size) for name, size in zip(names, sizes, strict=True)}
    budget = max(share * cost.predict(dict(zip(names, sizes, strict=True))), cost.predict(smallest))
    values = []
    for name, size in zip(names, sizes, strict=True):
        choice = GroupChoice(name, (*range(min(3, size), size, step), size), members[name])
        values.append(group_value(choice, scatters[name], temperature=1.0, epsilon=0.0, step=step))
    found = greedy(values, cost, budget, only_next=True).widths
    assert found == plain_algorithm_2(scatters, members, cost, budget, step)
