"""Counters that report averages of known times in whole microseconds, as OpenVINO's do."""

from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.runtimes.ov_times import NodeCounters, common_times_us


def counters(times_us: np.ndarray) -> np.ndarray:
    """OpenVINO's counters after each of these inferences: averages and times are rounded down to whole us."""
    times = np.floor(times_us).astype(np.int64)
    return (np.cumsum(times, axis=0) // np.arange(1, len(times) + 1)[:, None]).astype(np.float64)


def test_by_hand():
    # Sums 100, 120, 140: averages 100, 60, 46. From them: 100, 120.5, 139; single times 20.5 and 18.5.
    assert counters(np.array([[100], [20], [20]])).ravel().tolist() == [100, 60, 46]
    assert common_times_us(np.array([[100.0], [60], [46]])) == pytest.approx((20.5 + 18.5) / 2)


@given(st.integers(0, 2000), st.integers(5, 40), st.integers(0, 50_000))
def test_steady_times_are_found_to_a_microsecond_whatever_the_first_took(us, inferences, first_us):
    times = np.full((inferences, 1), us)
    times[0] = first_us
    assert common_times_us(counters(times)) == pytest.approx(us, abs=1)


@given(st.integers(0, 2**31), st.integers(10, 40))
def test_scattered_times_have_their_mean(seed, inferences):
    generator = np.random.default_rng(seed)
    usual = generator.integers(3, 400, 12)
    times = np.floor(usual * generator.uniform(0.9, 1.1, (inferences, 12)))
    times[0] = generator.integers(0, 10_000, 12)
    np.testing.assert_allclose(common_times_us(counters(times)), times[1:].mean(axis=0), atol=1.01)


def test_disturbances_do_not_count():
    """Now and then another process uses the processor for milliseconds, during one node or another."""
    generator = np.random.default_rng(0)
    times = np.full((20, 30), 25.0)
    times[0] = 300
    disturbed = times.copy()
    for inference in range(3, 20, 3):
        disturbed[inference, generator.integers(30)] += 4000
    assert disturbed[1:].mean() > 1.8 * times[1:].mean()
    np.testing.assert_allclose(common_times_us(counters(disturbed)), 25, atol=2.5)


def request(readings: dict[str, float]) -> SimpleNamespace:
    nodes = [SimpleNamespace(node_name=name, real_time=timedelta(microseconds=us)) for name, us in readings.items()]
    return SimpleNamespace(get_profiling_info=lambda: nodes)


def test_nodes_that_never_took_time_are_left_out_and_each_stretch_has_times_of_its_own():
    found = NodeCounters()
    for us in (10, 30):
        found.restart()
        for first in (us + 90, us + 45, us + 30):
            found.read(request({"conv": first, "fused relu": 0, "pool": first > us + 60}))
    names, times_us = found.node_times()
    assert names == ["conv", "pool"]
    assert times_us.shape == (6, 2)
    assert times_us[[0, 3], 0].tolist() == [100, 120]
    assert times_us[1, 0] == times_us[2, 0] == pytest.approx(10, abs=1)
    assert times_us[4, 0] == times_us[5, 0] == pytest.approx(30, abs=1)


def test_without_inferences_there_are_no_times():
    assert NodeCounters().node_times()[0] == []
