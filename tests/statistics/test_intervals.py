"""Intervals against published values, an independent maximisation, and what must hold for any interval."""

import math

import numpy as np
import pytest

from catro_deploy.statistics.intervals import Z, largest_unseen_loss, paired_difference, wilson


def test_wilson_by_published_values():
    """Newcombe, Statistics in Medicine 17 (1998), table I: 81/263, 15/148, 0/20 and 1/29, method 3."""
    for right, images, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (1, 29, 0.0061, 0.1718)):
        assert wilson(right / images, images) == pytest.approx((low, high), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1.0, 20) == pytest.approx((0.8389, 1.0), abs=5e-5)


@pytest.mark.parametrize(("gained", "lost", "images"), [(12, 2, 50), (0, 5, 45), (3, 1, 45), (30, 45, 1000)])
def test_a_paired_difference_ends_where_the_score_is_the_quantile(gained, lost, images):
    """The score with the likelihood maximised on a grid, as Tango (1998) defines it."""

    def score(delta):
        q = np.linspace(max(0.0, -delta) + 1e-9, (1 - delta) / 2 - 1e-9, 400_001)  # probability of a loss
        same = images - gained - lost
        likelihood = gained * np.log(q + delta) + lost * np.log(q) + same * np.log(1 - 2 * q - delta)
        best = q[likelihood.argmax()]
        return (gained - lost - images * delta) / math.sqrt(images * (2 * best + delta - delta**2))

    low, high = paired_difference(gained, lost, images)
    assert low < (gained - lost) / images < high
    assert (score(low), score(high)) == pytest.approx((Z, -Z), abs=2e-3)


def test_where_no_prediction_differs_the_interval_has_a_width():
    """z^2 / (n + z^2), from the score at q = 0."""
    assert paired_difference(0, 0, 45) == pytest.approx((-0.07865, 0.07865), abs=1e-5)
    assert largest_unseen_loss(45) == pytest.approx(Z**2 / (45 + Z**2))
    assert largest_unseen_loss(381) < 0.01 < largest_unseen_loss(380)


def test_an_exchange_of_both_networks_turns_the_interval_round():
    low, high = paired_difference(7, 3, 60)
    assert paired_difference(3, 7, 60) == pytest.approx((-high, -low))


def test_the_extremes_stay_within_bounds():
    for gained, lost in ((5, 0), (0, 5)):
        low, high = paired_difference(gained, lost, 5)
        assert -1 <= low < high <= 1
