import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.report.svg import Axis, zoomed

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(numbers, numbers)
def test_an_axis_holds_its_numbers_with_few_round_ticks(one, other):
    low, high = sorted((one, other))

    axis = zoomed(low, high)

    slack = max(axis.step * 1e-6, 1e-9 * abs(high))
    assert axis.low <= low + slack
    assert axis.high >= high - slack
    assert axis.low < axis.high
    assert 1 <= len(axis.ticks) <= 8
    assert all(math.isclose(t / axis.step, round(t / axis.step), abs_tol=1e-6) for t in axis.ticks)


def test_accuracies_get_an_axis_that_ends_at_100():
    axis = zoomed(96.3, 100, 4, floor=0, ceiling=100)

    assert (axis.low, axis.high, axis.step) == (96, 100, 1)
    assert axis.ticks == [96, 97, 98, 99, 100]


@pytest.mark.parametrize("number", [0.0, 37.5, 100.0])
def test_an_axis_of_one_number_stays_within_its_bounds_where_it_can(number):
    axis = zoomed(number, number, floor=0, ceiling=100)

    assert 0 <= axis.low <= number <= axis.high <= 100
    assert axis.low < axis.high


@pytest.mark.parametrize(("number", "place"), [(0, 0), (32, 50), (64, 100), (80, 100), (-1, 0)])
def test_places_are_percents_and_stay_inside(number, place):
    assert Axis(0, 64, 16).place(number) == place


def test_ticks_have_as_many_decimals_as_their_step():
    assert Axis(0, 1, 0.25).format(0.5) == "0.50"
    assert Axis(0, 64, 16.0).format(16.0) == "16"
    assert Axis(0, 120_000, 20_000).format(80_000) == "80,000"
