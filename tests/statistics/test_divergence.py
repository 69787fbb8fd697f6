import math

import numpy as np
import pytest
from scipy.optimize import minimize

from catro_deploy.statistics.agreement import mean_kl_nats
from catro_deploy.statistics.divergence import mean_change_cost_nats, scaled_kl_nats


def of_shares(*rows):
    """Logits whose softmax is ``rows``."""
    return np.log(np.array(rows)).astype(np.float32)


def test_what_it_takes_to_change_a_prediction_by_hand():
    """The middle of 3/4 and 1/4 is 1/2; of 0.6, 0.3 and 0.1, that of the first two is 0.45, and the third stays."""
    first = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    second = 0.6 * math.log(0.6 / 0.45) + 0.3 * math.log(0.3 / 0.45)
    assert mean_change_cost_nats(of_shares([0.75, 0.25])) == pytest.approx(first, rel=1e-5)
    assert mean_change_cost_nats(of_shares([0.3, 0.1, 0.6])) == pytest.approx(second, rel=1e-5)
    both = of_shares([0.75, 0.25, 1e-30], [0.3, 0.1, 0.6])
    assert mean_change_cost_nats(both) == pytest.approx((first + second) / 2, rel=1e-5)


def test_it_is_between_the_undecided_and_the_certain():
    assert mean_change_cost_nats(np.zeros((1, 2), np.float32)) == pytest.approx(0, abs=1e-12)
    assert mean_change_cost_nats(np.array([[900, 0]], np.float32)) == pytest.approx(math.log(2))
    assert mean_change_cost_nats(np.zeros((3, 1), np.float32)) == 0


def test_no_nearer_distribution_changes_the_prediction():
    """By a general optimiser: the least KL from 0.6, 0.3, 0.1 to a distribution that gives the second class."""
    p = np.array([0.6, 0.3, 0.1])

    def divergence(z):
        return float((p * (np.log(p) - (z - np.log(np.exp(z).sum())))).sum())

    found = minimize(divergence, np.zeros(3), constraints={"type": "ineq", "fun": lambda z: z[1] - z[0]})
    assert mean_change_cost_nats(of_shares(p)) == pytest.approx(found.fun, abs=1e-4)


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 3.0, 20.0])
def test_a_common_scale_costs_nothing(scale):
    given = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    assert scaled_kl_nats(given, given * scale) == pytest.approx(0, abs=1e-6)


def test_the_best_scale_is_found():
    generator = np.random.default_rng(1)
    reference, noise = (generator.normal(size=(40, 3)).astype(np.float32) for _ in range(2))
    other = 3 * (reference + noise / 2)
    by_grid = min(mean_kl_nats(reference, other * np.float32(scale)) for scale in np.geomspace(0.01, 100, 4001))
    found = scaled_kl_nats(reference, other)
    assert found == pytest.approx(by_grid, rel=1e-4)
    assert found < mean_kl_nats(reference, other)


def test_logits_that_are_not_finite_have_none():
    assert scaled_kl_nats(np.zeros((1, 2), np.float32), np.array([[np.nan, 0]], np.float32)) is None
