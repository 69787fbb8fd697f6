"""Values of candidate widths, computed by hand, and one share for all groups."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.catro.gains import GroupChoice, GroupValue, group_value, uniform
from catro_deploy.catro.scatter import Scatter
from catro_deploy.errors import BudgetError
from tests.catro.tables import TableCost

# One-channel ratio 3, two-channel ratio (3 + 2) / 2; scores exp((between - ratio * within) / 3).
SCATTER = Scatter(np.array([3.0, 2.0, 1.0]), np.ones(3))
AFTER_ONE = math.exp(-1 / 3) / math.exp(0)
AFTER_TWO = math.exp(-0.5) / (math.exp(0.5 / 3) + math.exp(-0.5 / 3))


def of(*widths: int, members: int = 1, step: int = 1, scatter: Scatter = SCATTER, temperature: float = 1.0):
    choice = GroupChoice("layer", widths, members)
    return group_value(choice, scatter, temperature=temperature, epsilon=0.0, step=step)


def test_values_by_hand():
    np.testing.assert_allclose(of(1, 2, 3).value, [0, AFTER_ONE, AFTER_ONE + AFTER_TWO])
    # The gains between two candidates add up, with or without a candidate in between.
    np.testing.assert_allclose(of(1, 3).value, [0, AFTER_ONE + AFTER_TWO])
    np.testing.assert_allclose(of(2, 3).value, [0, AFTER_TWO])
    np.testing.assert_allclose(of(3).value, [0])


def test_a_step_of_two_channels_is_judged_from_where_it_starts():
    both = math.exp(-1 / 3) + math.exp(-2 / 3)
    np.testing.assert_allclose(of(1, 3, step=2).value, [0, both])
    np.testing.assert_allclose(of(1, 2, 3, step=2).value, [0, AFTER_ONE, AFTER_ONE + AFTER_TWO])


def test_width_0_and_the_first_above_it_are_worth_the_same():
    np.testing.assert_allclose(of(0, 1, 3).value, [0, 0, AFTER_ONE + AFTER_TWO])


def test_a_coupled_channel_counts_once_for_every_member():
    np.testing.assert_allclose(of(1, 2, 3, members=4).value, 4 * of(1, 2, 3).value)


def test_values_of_extreme_scores_are_finite_and_their_small_gains_remain_distinct():
    scatter = Scatter(np.array([3e9, 2e9, 1e3, 1.0, 0.0]), np.array([1e3, 1e3, 1e9, 2e9, 0.0]))
    found = of(1, 2, 3, 4, 5, scatter=scatter, temperature=1e-3)
    assert np.isfinite(found.value).all()
    assert (np.diff(found.value) >= 0).all()
    assert found.log_gain is not None
    assert np.isfinite(found.log_gain[:3]).all()
    assert (found.log_gain[1:3] < -750).all()  # e**-745 is the smallest float64
    assert found.log_gain[1] != found.log_gain[2]
    assert found.log_gain[3] == -np.inf  # a dead channel


@pytest.mark.parametrize("widths", [(), (0,), (-1, 2), (3, 2), (2, 2)])
def test_candidates_must_rise(widths):
    with pytest.raises(ValueError, match=rf"\blayer\b.*{re.escape(str(widths))}"):
        GroupChoice("layer", widths)


@pytest.mark.parametrize("value", [[0.0], [0.0, -1.0], [0.0, np.inf]])
def test_values_must_be_one_for_each_width_and_not_fall(value):
    with pytest.raises(ValueError, match=r"\bvalues of layer\b"):
        GroupValue(GroupChoice("layer", (1, 2)), np.array(value))


def test_gains_that_are_not_those_of_the_values_are_refused():
    choice = GroupChoice("layer", (0, 1, 2))
    GroupValue(choice, np.array([0.0, 5.0, 7.0]), np.array([-np.inf, math.log(2)]))
    with pytest.raises(ValueError, match="log_gain"):
        GroupValue(choice, np.array([0.0, 5.0, 7.0]), np.array([math.log(5), math.log(3)]))


def without_worth(name: str, *widths: int) -> GroupValue:
    return GroupValue(GroupChoice(name, widths), np.zeros(len(widths)))


def test_the_nearest_candidate_is_taken_the_narrower_of_two():
    # At half of 16 channels, 6 and 10 are equally near to 8, so 6; at any larger share, 10. At half of 8: 4.
    values = [without_worth("a", 6, 10, 16), without_worth("b", 0, 2, 4, 8)]
    cost = TableCost({"a": (6, 10, 16), "b": (0, 2, 4, 8)}, {"a": [6, 10, 16], "b": [0, 2, 4, 8]})
    full = {"a": 16, "b": 8}
    assert uniform(values, full, cost, 13).widths == {"a": 6, "b": 4}
    assert uniform(values, full, cost, 14).widths == {"a": 10, "b": 4}
    assert uniform(values, full, cost, 8).widths == {"a": 6, "b": 2}
    with pytest.raises(BudgetError, match=r"\b8\b.*\b7\.9\b"):
        uniform(values, full, cost, 7.9)


def test_a_larger_share_that_is_faster_is_found_beyond_one_that_does_not_fit():
    values = [without_worth("a", 8, 15, 16)]
    cost = TableCost({"a": (8, 15, 16)}, {"a": [300, 954, 547]})
    assert uniform(values, {"a": 16}, cost, 600).widths == {"a": 16}


@settings(max_examples=50, deadline=None)
@given(
    full=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    share=st.floats(0.05, 1.0),
    seed=st.integers(0, 1000),
)
def test_uniform_is_the_largest_share_that_fits(full, share, seed):
    names = [f"g{place}" for place in range(len(full))]
    prices = dict(zip(names, np.random.default_rng(seed).uniform(0.1, 5, len(full)), strict=True))
    widths = dict(zip(names, full, strict=True))
    candidates = {name: tuple(range(1, width + 1)) for name, width in widths.items()}
    cost = TableCost(candidates, {name: prices[name] * np.array(these) for name, these in candidates.items()})
    budget = max(share * cost.predict(widths), cost.predict(dict.fromkeys(names, 1)))
    found = uniform([without_worth(name, *these) for name, these in candidates.items()], widths, cost, budget)
    assert found.cost == cost.predict(found.widths) <= budget
    # Every width is the integer nearest to the share; halves are rounded down.
    at = [{n: max(1, math.ceil(s * w - 0.5)) for n, w in widths.items()} for s in np.linspace(0, 1, 2001)]
    assert found.cost >= max(cost.predict(w) for w in at if cost.predict(w) <= budget) - 1e-9
