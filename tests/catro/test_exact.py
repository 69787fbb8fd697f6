"""The exact allocation against brute force over all combinations, and its behaviour at its limits."""

import numpy as np
import pytest
from hypothesis import given, settings

from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import GroupChoice, GroupValue
from catro_deploy.catro.greedy import greedy
from catro_deploy.errors import BudgetError
from catro_deploy.records import Branch
from tests.catro.networks import Drawn, networks
from tests.catro.tables import TableCost, best, narrower_than_it_could_be, possible, valued, worth


@settings(max_examples=80, deadline=None)
@given(network=networks())
def test_it_is_the_best_of_all_combinations(network: Drawn):
    values, cost, budget, branches = network.values, network.cost, network.budget, network.branches
    optimum = best(values, cost, budget, branches)
    assert optimum is not None  # the budget is what one of them costs, or more
    found = exact(values, cost, budget, branches, gap=0.0)
    assert found.value == pytest.approx(optimum, rel=1e-5)
    assert found.value == pytest.approx(worth(values, found.widths))
    assert found.cost == cost.predict(found.widths) <= budget
    assert found.gap is not None
    assert 0 <= found.gap < 1e-4
    assert found.widths in possible(values, branches)
    assert narrower_than_it_could_be(values, cost, budget, found.widths) == []


@settings(max_examples=40, deadline=None)
@given(network=networks())
def test_it_is_never_worse_than_greedy_and_as_near_to_the_best_as_it_says(network: Drawn):
    values, cost, budget, branches = network.values, network.cost, network.budget, network.branches
    found = exact(values, cost, budget, branches, gap=0.3)
    try:
        assert found.value >= greedy(values, cost, budget, branches).value
    except BudgetError:
        assert found.cost <= budget
    optimum, smallest = best(values, cost, budget, branches), sum(float(group.value[0]) for group in values)
    assert optimum is not None
    assert found.gap is not None
    # The solver's gap is relative to the loss against the largest widths, the reported one to the gain over the
    # smallest.
    missing, lost = (
        found.gap * (found.value - smallest) / (1 - found.gap),
        sum(g.value[-1] for g in values) - found.value,
    )
    assert missing <= 0.3 * lost + 1e-6
    assert optimum - found.value <= found.gap * (optimum - smallest) / (1 - found.gap) + 1e-9


def test_greedy_by_hand_is_beaten():
    # Gain per cost: a 1.0 / 1, b 10 / 10.1. Greedy takes a, then b does not fit into 10.5; b alone is worth 10.
    values = valued(a={1: 0.0, 2: 1.0}, b={1: 0.0, 2: 10.0})
    cost = TableCost({"a": (1, 2), "b": (1, 2)}, {"a": [0, 1], "b": [0, 10.1]})
    assert greedy(values, cost, 10.5).value == 1
    found = exact(values, cost, 10.5)
    assert found.widths == {"a": 1, "b": 2}
    assert found.gap == pytest.approx(0, abs=1e-6)


def test_a_cliff_is_avoided():
    # 15 channels cost more than 16, and are worth as much: an optimum that must not be returned.
    values = valued(a={8: 0.0, 15: 1.0, 16: 1.0})
    assert exact(values, TableCost({"a": (8, 15, 16)}, {"a": [300, 954, 547]}), 2000).widths == {"a": 16}


def test_a_network_that_only_two_steps_at_once_bring_into_the_budget():
    values = valued(a={1: 0.0, 2: 1.0}, b={1: 0.0, 2: 1.0})
    cost = TableCost({"a": (1, 2), "b": (1, 2)}, {}, {("a", "b"): [[10, 12], [12, 3]]})
    with pytest.raises(BudgetError):
        greedy(values, cost, 4)
    assert exact(values, cost, 4).widths == {"a": 2, "b": 2}


def test_what_the_solvers_tolerance_lets_through_is_sought_again():
    # b = 2 exceeds the budget by a billionth.
    values = valued(a={1: 0.0, 2: 1.0}, b={1: 0.0, 2: 2.0})
    cost = TableCost({"a": (1, 2), "b": (1, 2)}, {"a": [1, 3], "b": [1, 9 + 1e-8]})
    assert exact(values, cost, 10).widths == {"a": 2, "b": 1}


def test_a_budget_that_nothing_meets():
    values = valued(a={1: 0.0, 2: 1.0})
    with pytest.raises(BudgetError, match=r"\b7\b.*\b5\b"):
        exact(values, TableCost({"a": (1, 2)}, {"a": [1, 2]}, constant=6), 5)


def test_the_groups_of_a_branch_go_together_and_the_worthless_branch_first():
    # Each block costs 12 in full and the stream 1, so a budget of 13 has room for one block.
    values = valued(
        stream={1: 0.0},
        **{name: {0: 0.0, 2: 0.0, 4: 0.01} for name in ("idle1", "idle2")},
        **{name: {0: 0.0, 2: 1.0, 4: 1.2} for name in ("useful1", "useful2")},
    )
    candidates = {group.choice.name: group.choice.widths for group in values}
    block = [[0, 0, 0], [0, 3, 6], [0, 6, 12]]
    cost = TableCost(candidates, {"stream": [1]}, {("idle1", "idle2"): block, ("useful1", "useful2"): block})
    branches = [Branch("idle", ("idle1", "idle2")), Branch("useful", ("useful1", "useful2"))]
    assert exact(values, cost, 13, branches).widths == {"stream": 1, "idle1": 0, "idle2": 0, "useful1": 4, "useful2": 4}
    with pytest.raises(ValueError, match="candidate 0"):
        exact(values, cost, 13, branches[:1])


@pytest.mark.parametrize("limit_s", [0.0, 0.001, 0.05])
def test_when_time_is_up_the_best_so_far_is_given_with_its_gap(limit_s):
    generator = np.random.default_rng(3)
    candidates = {f"g{place}": tuple(range(1, 9)) for place in range(24)}
    names = list(candidates)
    met = [(a, b) for i, a in enumerate(names) for b in names[i + 1 : i + 5]]
    cost = TableCost(
        candidates, {}, {pair: np.outer(range(1, 9), range(1, 9)) + generator.random((8, 8)) for pair in met}
    )
    values = [
        GroupValue(GroupChoice(name, widths), np.cumsum(generator.random(8))) for name, widths in candidates.items()
    ]
    budget = 0.4 * cost.predict(dict.fromkeys(names, 8))
    found = exact(values, cost, budget, limit_s=limit_s, gap=0.0)
    assert found.cost <= budget
    assert found.value >= greedy(values, cost, budget).value
    assert found.gap is not None
    assert 0 < found.gap < 1
