"""Ranges from histograms: by definition, by brute force, and where the answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.precision.thresholds import BINS, FEW, LEVELS, Histogram, range_by


def histogram(values):
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    return Histogram(low, high, np.histogram(values, BINS, (low, high))[0].astype(float))


def spread(seed, count=20_000):
    generator = np.random.default_rng(seed)
    return generator.normal(generator.uniform(-1, 1), 1, count) * 10 ** generator.uniform(-3, 3)


@given(st.integers(0, 50), st.sampled_from(["min-max", "percentile", "mse", "entropy"]))
def test_every_range_contains_zero_and_is_within_the_values(seed, method):
    found = histogram(spread(seed))
    low, high = range_by(method, found, 99.9)
    assert found.low <= low <= 0 <= high <= found.high
    assert low < high


@given(st.integers(0, 50))
def test_a_percentile_leaves_out_what_it_says(seed):
    values = spread(seed)
    found = histogram(values)
    low, high = range_by("percentile", found, 99)
    bin_width = (found.high - found.low) / BINS
    assert low == pytest.approx(min(0, np.percentile(values, 1)), abs=2 * bin_width)
    assert high == pytest.approx(max(0, np.percentile(values, 99)), abs=2 * bin_width)
    assert found.outside(low, high) <= 0.02 + 2 / BINS


def squared_error(values, low, high):
    step = (high - low) / (LEVELS - 1)
    zero = round(-low / step)
    return float(((np.clip(np.round(values / step) + zero, 0, LEVELS - 1) - zero) * step - values).__pow__(2).mean())


def test_the_least_squared_error_is_that_of_brute_force():
    generator = np.random.default_rng(0)
    values = np.append(np.abs(generator.laplace(size=1_000_000)), 30.0)  # one-sided, with a long tail
    _, high = range_by("mse", histogram(values), 100)
    best = min(squared_error(values, 0, end) for end in np.linspace(0.05, 1, 200) * values.max())
    assert squared_error(values, 0, high) == pytest.approx(best, rel=0.02)
    assert best < 0.9 * squared_error(values, 0, values.max())


def test_entropy_cuts_off_a_few_values_far_away_and_nothing_of_a_box():
    generator = np.random.default_rng(0)
    near = generator.normal(0, 1, 200_000)
    low, high = range_by("entropy", histogram(np.concatenate([near, [60.0, -50.0]])), 100)
    assert 2.5 < high < 12
    assert -12 < low < -2.5
    box = histogram(generator.uniform(0, 1, 200_000))
    assert range_by("entropy", box, 100)[1] > 0.95


def test_zeros_of_a_relu_do_not_draw_entropy_to_zero():
    values = np.maximum(np.random.default_rng(0).normal(0, 1, 200_000), 0)
    assert range_by("entropy", histogram(values), 100)[1] > 2


@pytest.mark.parametrize("method", ["percentile", "mse", "entropy"])
def test_of_few_values_and_of_constants_none_is_clipped(method):
    few = histogram(np.random.default_rng(0).normal(size=FEW - 1))
    assert range_by(method, few, 99) == (few.low, few.high)
    assert range_by(method, Histogram(0.0, 0.0, np.full(BINS, 1e6)), 99) == (0.0, 0.0)
