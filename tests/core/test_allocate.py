"""Algorithm 2 on examples worked by hand, and the properties of both allocations."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.core.allocate import GroupChoice, GroupGains, greedy, log_gains, uniform
from catro_deploy.core.scatter import Scatter
from catro_deploy.errors import BudgetError


class PriceList:
    """A cost of so much for every channel of each group, as if groups never met in a layer."""

    def __init__(self, **prices: float) -> None:
        self.prices = prices

    def predict(self, widths: Mapping[str, int]) -> float:
        return sum(self.prices[name] * width for name, width in widths.items())

    def change(self, widths: Mapping[str, int], group: str, width: int) -> float:
        return self.prices[group] * (width - widths[group])

    def neighbours(self, group: str) -> list[str]:
        return [group]


def gains(name: str, smallest: int, *values: float) -> GroupGains:
    return GroupGains(GroupChoice(name, smallest, smallest + len(values)), np.log(values))


def test_three_layers_by_hand():
    # All start at 1 channel: 1 + 2 + 4 = 7 of 12. Gain per cost: a 0.5, b 0.9 / 2 = 0.45, c 0.8 / 4 = 0.2.
    # a to 2 (8 spent; then a is 0.3), b to 2 (10; then 0.1), a to 3 (11, its largest); c would need 15, b 13.
    layers = [gains("a", 1, 0.5, 0.3), gains("b", 1, 0.9, 0.2), gains("c", 1, 0.8, 0.7)]
    assert greedy(layers, PriceList(a=1, b=2, c=4), 12, step=1) == {"a": 3, "b": 2, "c": 1}
    # With 15 c's step fits before b's second, since 0.2 is more than 0.1.
    assert greedy(layers, PriceList(a=1, b=2, c=4), 15, step=1) == {"a": 3, "b": 2, "c": 2}


def test_gains_by_hand():
    # One-channel ratio 3, two-channel ratio (3 + 2) / 2; scores exp((between - ratio * within) / 3).
    scatter = Scatter(np.array([3.0, 2.0, 1.0]), np.ones(3))
    found = log_gains(GroupChoice("layer", 1, 3), scatter, step=1, temperature=1.0, epsilon=0.0).log_gain
    after_one = math.exp(-1 / 3) / math.exp(0)
    after_two = math.exp(-0.5) / (math.exp(0.5 / 3) + math.exp(-0.5 / 3))
    np.testing.assert_allclose(np.exp(found), [after_one, after_two])


def test_a_coupled_channel_gains_once_for_every_member():
    scatter = Scatter(np.array([3.0, 2.0, 1.0]), np.ones(3))
    alone, coupled = (
        log_gains(GroupChoice("stream", 1, 3, members), scatter, step=1, temperature=1.0, epsilon=0.0).log_gain
        for members in (1, 4)
    )
    np.testing.assert_allclose(np.exp(coupled), 4 * np.exp(alone))


def test_gains_of_huge_scores_do_not_overflow():
    scatter = Scatter(np.array([3e9, 2e9, 1e3, 1.0]), np.array([1e3, 1e3, 1e9, 1e9]))
    found = log_gains(GroupChoice("layer", 1, 4), scatter, step=1, temperature=1e-3, epsilon=0.0).log_gain
    assert np.isfinite(found).all()


def test_a_cost_that_neighbours_share_is_seen():
    class Product(PriceList):
        """a and b meet in one layer: its cost is the product of their widths; c stands alone at 3 a channel."""

        def predict(self, widths: Mapping[str, int]) -> float:
            return widths["a"] * widths["b"] + 3 * widths["c"]

        def change(self, widths: Mapping[str, int], group: str, width: int) -> float:
            return self.predict({**widths, group: width}) - self.predict(widths)

        def neighbours(self, group: str) -> list[str]:
            return ["a", "b"] if group in "ab" else ["c"]

    # From (1, 1, 1) = 4: a costs 1 (worth 1.0); then b costs 2 (worth 0.9 / 2) and c 3 (worth 1.5 / 3): c, to 8.
    layers = [gains("a", 1, 1.0), gains("b", 1, 0.9), gains("c", 1, 1.5)]
    assert greedy(layers, Product(), 8, step=1) == {"a": 2, "b": 1, "c": 2}


def test_a_step_is_several_channels_and_stops_at_the_largest():
    layers = [GroupGains(GroupChoice("a", 1, 6), np.log([0.9, 0.8, 0.7, 0.6, 0.5]))]
    assert greedy(layers, PriceList(a=1), 5, step=3) == {"a": 4}
    assert greedy(layers, PriceList(a=1), 6, step=3) == {"a": 6}


def test_a_budget_below_the_smallest_network_says_what_that_costs():
    with pytest.raises(BudgetError, match=r"(?s)costs 30, more than the 29.*d-min"):
        greedy([gains("a", 3, 1.0)], PriceList(a=10), 29, step=1)
    with pytest.raises(BudgetError):
        uniform([GroupChoice("a", 3, 4)], {"a": 4}, PriceList(a=10), 29)


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
    choices = [GroupChoice(name, 1, width) for name, width in widths.items()]
    cost = PriceList(**prices)
    budget = max(share * cost.predict(widths), cost.predict(dict.fromkeys(names, 1)))
    found = uniform(choices, widths, cost, budget)
    assert cost.predict(found) <= budget
    at = [{n: min(w, max(1, math.floor(s * w + 0.5))) for n, w in widths.items()} for s in np.linspace(0, 1, 2001)]
    assert cost.predict(found) >= max(cost.predict(w) for w in at if cost.predict(w) <= budget) - 1e-9
