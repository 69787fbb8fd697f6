"""Limits in addition to the budget: the exact and the greedy allocation against brute force over all combinations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import CostTables, Limit, uniform
from catro_deploy.catro.greedy import greedy
from catro_deploy.errors import BudgetError
from tests.catro.networks import Drawn, networks
from tests.catro.tables import TableCost, possible, valued, worth


@dataclass(frozen=True)
class Peak:
    """The largest of several costs."""

    costs: tuple[TableCost, ...]

    def predict(self, widths: Mapping[str, int]) -> float:
        return max(cost.predict(widths) for cost in self.costs)

    def rows(self, candidates: Mapping[str, Sequence[int]]) -> list[CostTables]:
        return [cost.tables(candidates) for cost in self.costs]


def second_device(drawn: Drawn, generator: np.random.Generator) -> TableCost:
    """Other costs of the same layers, which rise and fall arbitrarily."""
    content = drawn.cost.content
    single = {name: table * generator.uniform(0.2, 3, len(table)) for name, table in content.single.items()}
    pair = {names: table * generator.uniform(0.2, 3, table.shape) for names, table in content.pair.items()}
    return TableCost(drawn.cost.candidates, single, pair, 1.0)


def size(drawn: Drawn, generator: np.random.Generator) -> TableCost:
    """Products of the widths that meet in a layer, and of some that do not."""
    candidates = drawn.cost.candidates
    names = list(candidates)
    met = dict.fromkeys([*drawn.cost.content.pair, *([(names[0], names[-1])] if len(names) > 1 else [])])
    pair = {(a, b): np.outer(candidates[a], candidates[b]) * generator.integers(1, 10) for a, b in met}
    return TableCost(candidates, {name: np.array(widths) for name, widths in candidates.items()}, pair, 7.0)


def memory(drawn: Drawn, generator: np.random.Generator) -> Peak:
    """Three steps, each with channels of some groups."""
    candidates = drawn.cost.candidates
    steps = [
        {name: np.array(widths) * int(generator.integers(0, 4)) for name, widths in candidates.items()}
        for _ in range(3)
    ]
    return Peak(tuple(TableCost(candidates, step, constant=float(generator.integers(0, 5))) for step in steps))


@st.composite
def limited(draw: st.DrawFn) -> tuple[Drawn, list[Limit]]:
    """A network with limits as well as a budget, each met by some combination of widths, with at most 1% to spare."""
    drawn = draw(networks())
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    uses = {"latency on another": second_device, "size": size, "memory": memory}
    named = {name: make(drawn, generator) for name, make in uses.items() if draw(st.booleans())}
    combinations = possible(drawn.values, drawn.branches)
    limits = [
        Limit(name, use, use.predict(draw(st.sampled_from(combinations))) * draw(st.sampled_from([1.0, 1.01])))
        for name, use in named.items()
    ]
    return drawn, limits


def best_within(drawn: Drawn, limits: Sequence[Limit]) -> float | None:
    fitting = [
        worth(drawn.values, widths)
        for widths in possible(drawn.values, drawn.branches)
        if drawn.cost.predict(widths) <= drawn.budget and all(limit.holds(widths) for limit in limits)
    ]
    return max(fitting, default=None)


@settings(max_examples=120, deadline=None)
@given(given=limited())
def test_the_exact_allocation_is_the_best_of_all_that_are_within_every_limit(given):
    drawn, limits = given
    optimum = best_within(drawn, limits)
    if optimum is None:
        with pytest.raises(BudgetError):
            exact(drawn.values, drawn.cost, drawn.budget, drawn.branches, limits=limits, gap=0.0)
        return
    found = exact(drawn.values, drawn.cost, drawn.budget, drawn.branches, limits=limits, gap=0.0)
    assert found.value == pytest.approx(optimum, rel=1e-5)
    assert found.cost <= drawn.budget
    assert all(limit.holds(found.widths) for limit in limits)


@settings(max_examples=60, deadline=None)
@given(given=limited())
def test_the_greedy_allocation_stays_within_every_limit_or_finds_nothing(given):
    drawn, limits = given
    try:
        found = greedy(drawn.values, drawn.cost, drawn.budget, drawn.branches, limits=limits)
    except BudgetError:
        return
    optimum = best_within(drawn, limits)
    assert optimum is not None
    assert found.value <= optimum + 1e-9
    assert found.cost <= drawn.budget
    assert all(limit.holds(found.widths) for limit in limits)


def test_one_share_for_all_stops_where_a_limit_does():
    values = valued(a={1: 0.0, 2: 1.0, 3: 2.0, 4: 3.0})
    cost = TableCost({"a": (1, 2, 3, 4)}, {"a": [1, 2, 3, 4]})
    squares = TableCost({"a": (1, 2, 3, 4)}, {"a": [1, 4, 9, 16]})
    assert uniform(values, {"a": 4}, cost, 3.5, [Limit("size", squares, 5)]).widths == {"a": 2}


def test_greedy_goes_through_widths_that_another_device_is_slow_at():
    """The smallest network is too slow on the second device, but a wider one is not."""
    values = valued(a={7: 0.0, 8: 1.0}, b={1: 0.0, 2: 5.0})
    candidates = {"a": (7, 8), "b": (1, 2)}
    cost = TableCost(candidates, {"a": [7, 8], "b": [1, 2]})
    slow_at_seven = TableCost(candidates, {"a": [14, 8], "b": [1, 3]})
    limit = Limit("latency on another", slow_at_seven, 10)
    assert greedy(values, cost, 20, limits=[limit]).widths == {"a": 8, "b": 1}


@pytest.mark.parametrize("allocate", [greedy, exact])
def test_the_error_names_the_limit_that_no_network_meets(allocate):
    values = valued(a={1: 0.0, 2: 1.0})
    cost = TableCost({"a": (1, 2)}, {"a": [1, 2]})
    limit = Limit("size", TableCost({"a": (1, 2)}, {"a": [1, 2]}, constant=100), 100)
    with pytest.raises(BudgetError, match=r"\bsize\b.*\b101\b.*\b100\b"):
        allocate(values, cost, 5, limits=[limit])
    assert allocate(values, cost, 5, limits=[replace(limit, most=101)]).widths == {"a": 1}
