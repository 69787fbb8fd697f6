"""Measurements that were disturbed are repeated."""

import pytest

from catro_deploy.latency.repetition import Repetition
from catro_deploy.records import Speedup


def repeated(measurements, repetition=None):
    """The number of the measurement that counts, and how many were made, of (original_us, half width of interval)."""
    repetition = repetition or Repetition(lambda one: (Speedup(2.0, (2 - 2 * one[1], 2 + 2 * one[1])), {50: one[0]}))
    numbers = iter(range(len(measurements)))
    found, made = repetition.repeat(lambda: measurements[next(numbers)])
    return measurements.index(found), made


@pytest.mark.parametrize(
    ("half_widths", "counts"),
    [([0.01], 0), ([0.06, 0.02], 1), ([0.06, 0.2, 0.1], 0), ([0.2, 0.1, 0.07], 2)],
)
def test_until_the_speedup_is_certain(half_widths, counts):
    assert repeated([(200.0, half) for half in half_widths]) == (counts, len(half_widths))


@pytest.mark.parametrize(
    ("originals_us", "counts"),
    [
        ([[200.0], [209.0]], [0, 0]),
        ([[200.0], [220.0, 204.0]], [0, 1]),
        ([[200.0], [230.0, 220.0, 240.0]], [0, 1]),  # the least disturbed of three
        ([[220.0], [200.0], [212.0, 180.0], [190.0, 188.0]], [0, 0, 1, 1]),  # the fastest so far is the reference
    ],
)
def test_until_the_original_is_as_fast_as_before(originals_us, counts):
    repetition = Repetition(lambda us: (Speedup(2.0, (1.99, 2.01)), {50: us}))
    for measurements, expected in zip(originals_us, counts, strict=True):
        assert repeated(measurements, repetition) == (expected, len(measurements))


def test_the_greater_doubt_decides_between_a_wide_interval_and_a_slow_original():
    # 1.5 times the allowed width; twice the allowed slowdown; 1.2 times the allowed slowdown
    assert repeated([(200.0, 0.045), (220.0, 0.01), (212.0, 0.01)]) == (2, 3)


def test_a_known_speed_of_the_original_is_the_first_reference():
    repetition = Repetition(lambda us: (Speedup(2.0, (1.99, 2.01)), {50: us}), {50: 100.0})
    assert repeated([110.0, 104.0], repetition) == (1, 2)


def test_the_tail_of_the_original_may_vary_more_than_its_median():
    repetition = Repetition(lambda tail_us: (Speedup(2.0, (1.99, 2.01)), {50: 100.0, 99: tail_us}))
    assert repeated([150.0], repetition) == (0, 1)
    assert repeated([187.0], repetition) == (0, 1)  # 1.25 times the smallest
    assert repeated([190.0, 1200.0, 140.0], repetition) == (2, 3)
