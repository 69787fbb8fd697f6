"""Binomial tails by hand and by scipy.stats; planted orders of classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from catro_deploy.statistics.guessing import (
    fitting_order,
    is_below,
    is_flat,
    is_no_better_than_guessing,
    is_one_sided,
    most_frequent_share,
)


@given(st.integers(1, 300), st.floats(0.01, 0.99), st.data())
def test_both_tests_are_binomial(images, share, data):
    right = data.draw(st.integers(0, images))
    by_chance = binom.sf(right - 1, images, share)
    expected = by_chance > 0.01 and right < (1 + share) / 2 * images
    if abs(by_chance - 0.01) > 1e-9:
        assert is_no_better_than_guessing(right, images, share) == expected
    if abs(binom.cdf(right, images, share) - 0.01) > 1e-9:
        assert is_below(right, images, share) == (binom.cdf(right, images, share) < 0.01)


@pytest.mark.parametrize(
    ("right", "images", "found"),
    [
        (25, 100, True),
        (34, 100, True),  # in 2.8% of cases by chance
        (36, 100, False),  # in 1% of cases
        (0, 100, True),
        (4, 4, False),  # all right: 0.4% by chance
        (2, 2, False),  # all right, although 6% by chance
        (1, 4, True),
    ],
)
def test_a_quarter_right_of_four_classes_is_a_guess(right, images, found):
    assert is_no_better_than_guessing(right, images, 0.25) == found


def test_always_answering_the_most_frequent_class_is_a_guess():
    labels = np.repeat([0, 1], [90, 10])
    assert most_frequent_share(labels) == 0.9
    assert is_no_better_than_guessing(90, 100, most_frequent_share(labels))


def shuffled(labels, seed=0):
    return np.random.default_rng(seed).permutation(labels)


@pytest.mark.parametrize("order", [(1, 2, 3, 0), (0, 2, 1, 3)])
def test_a_planted_order_is_found(order):
    labels = shuffled(np.repeat(np.arange(4), 25))
    predictions = np.argsort(order)[labels]  # output k stands for class order[k]
    assert fitting_order(predictions, labels, 4) == order


def test_a_planted_order_is_found_among_errors():
    labels = shuffled(np.repeat(np.arange(10), 50))
    predictions = shuffled(np.arange(10), 1)[labels]
    wrong = np.random.default_rng(2).random(len(labels)) < 0.1
    predictions[wrong] = np.random.default_rng(3).integers(0, 10, wrong.sum())
    order = fitting_order(predictions, labels, 10)
    assert order is not None
    assert (np.array(order)[shuffled(np.arange(10), 1)] == np.arange(10)).all()


def test_the_right_order_stays():
    labels = shuffled(np.repeat(np.arange(4), 25))
    assert fitting_order(labels, labels, 4) is None


@pytest.mark.parametrize("seed", range(20))
def test_guesses_have_no_order(seed):
    generator = np.random.default_rng(seed)
    predictions, labels = generator.integers(0, 10, (2, 60))
    assert fitting_order(predictions, labels, 10) is None
    assert fitting_order(np.zeros(60, np.int64), labels, 10) is None


def test_logits_that_are_not_finite_have_no_order():
    labels = np.repeat(np.arange(4), 25)
    assert fitting_order(np.full(100, -1), labels, 4) is None


@pytest.mark.parametrize(
    ("confidence", "classes", "flat"),
    [(0.25, 4, True), (0.324, 4, True), (0.326, 4, False), (0.549, 2, True), (0.551, 2, False), (0.109, 1000, False)],
)
def test_a_confidence_within_a_tenth_of_the_way_from_chance_is_flat(confidence, classes, flat):
    """Of four classes: 0.25 + 0.1 * 0.75 = 0.325."""
    assert is_flat(confidence, classes) == flat


@pytest.mark.parametrize(
    ("predictions", "one_sided"),
    [
        ([1] * 7, True),  # 1 / 128 by chance, for a class that half of the images show
        ([1] * 6, False),  # 1 / 64
        ([1] * 95 + [0] * 5, True),
        ([1] * 94 + [0] * 6, False),
        ([-1] * 10, False),
        ([1] * 10 + [-1] * 10, False),
    ],
)
def test_nearly_all_predictions_the_same(predictions, one_sided):
    assert is_one_sided(np.array(predictions)) == one_sided
