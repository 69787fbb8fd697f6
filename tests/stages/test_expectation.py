"""The divergence expected of a variant, from those that were tried."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.stages.expectation import expected_kl_nats

INT8 = {"quantize.precision": "int8"}
SCATTER = {"prune.worth": "scatter"}
SIZES = ("28", "24", "20")


def size(value):
    return {"prune.input_size": value}


def test_a_factor_for_each_setting_and_none_for_one_that_was_not_tried():
    tried = [({}, 0.5), (INT8, 0.05), (INT8 | SCATTER, 0.1)]
    candidates = [SCATTER, INT8 | {"prune.depth": "never"}, {"prune.depth": "never"}]
    assert expected_kl_nats(tried, candidates, SIZES) == pytest.approx([1.0, 0.05, 0.5])


def test_the_factor_of_the_input_size_is_one_per_step():
    tried = [({}, 0.1), (size("28"), 0.2)]
    assert expected_kl_nats(tried, [size("24"), size("20")], SIZES) == pytest.approx([0.4, 0.8])


def test_a_divergence_of_zero_is_near_and_not_an_error():
    near, other = expected_kl_nats([({}, 0.1), (INT8, 0.0)], [INT8 | SCATTER, SCATTER], SIZES)
    assert (near, other) == pytest.approx((1e-6, 0.1))


def test_factors_are_those_by_which_screening_is_wrong():
    screened = [({}, 0.5), (INT8, 0.01), (SCATTER, 0.2), (INT8 | SCATTER, 0.02)]
    tried = [({}, 0.6), (INT8, 0.12)]  # 1.2 times as far as found, and in int8 12 times
    assert expected_kl_nats(tried, [SCATTER, INT8 | SCATTER], SIZES, screened) == pytest.approx([0.24, 0.24])


def test_what_was_not_screened_is_expected_to_be_found_as_the_others_were():
    screened = [({}, 0.5), (INT8, 0.05), (SCATTER, 0.25)]
    tried = [({}, 1.0)]
    assert expected_kl_nats(tried, [INT8 | SCATTER], SIZES, screened) == pytest.approx([2 * 0.025])


@given(st.lists(st.floats(0.01, 100), min_size=4, max_size=4))
def test_independent_factors_are_found_from_one_change_at_a_time(factors):
    base, *others = factors
    changes = [INT8, SCATTER, size("24")]
    shares = [*others[:2], others[2] ** 2]  # the second step of the size
    tried = [({}, base), *((one, base * share) for one, share in zip(changes, shares, strict=True))]
    found = expected_kl_nats(tried, [INT8 | SCATTER | size("24"), size("28")], SIZES)
    assert found == pytest.approx([base * math.prod(shares), base * others[2]])
