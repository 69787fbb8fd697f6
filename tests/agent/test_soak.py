"""The sustained latency of a soak is that of its end: for a function with a real clock, and for a real network."""

import time

import pytest

from catro_deploy.agent.agent import run
from catro_deploy.agent.soak import SUSTAINED, WINDOWS, soaked
from catro_deploy.stages.recount import recounted
from tests.agent.test_agent import job_for, workspace

SMALL, LARGE = {"layers": 2, "channels": 4}, {"layers": 2, "channels": 8}


def test_what_is_sustained_is_the_last_quarter_and_not_the_mean():
    """A device that becomes twice as slow halfway through: the clock is real, the latencies are made up."""
    seconds, began = 0.4, []

    def infer() -> float:
        began.append(time.perf_counter())
        time.sleep(0.001)
        return 100.0 if began[-1] - began[0] < seconds / 2 else 200.0

    passed = []
    found = soaked(infer, seconds, passed.append)
    assert seconds <= found.seconds < 10 * seconds
    assert (found.sustained_us, found.sustained_p99_us) == (200.0, 200.0)
    assert len(found.windows) == WINDOWS == len(passed)
    assert (found.windows[0].p50_us, found.windows[-1].p50_us) == (100.0, 200.0)
    assert [window.starts_s for window in found.windows] == sorted(window.starts_s for window in found.windows)
    assert SUSTAINED == WINDOWS / 4


def test_one_inference_that_takes_longer_than_a_window_is_enough():
    found = soaked(lambda: time.sleep(0.02) or 20000.0, 0.01, lambda seconds: None)
    assert all(window.n == 1 for window in found.windows)


@pytest.mark.slow
def test_a_network_is_soaked_after_it_was_measured(tmp_path):
    job = job_for(tmp_path, original=LARGE, pruned=SMALL, soak_s=1.0)
    result = run(job, workspace(tmp_path), lambda event: None)
    assert result.soak is not None
    assert result.soak.seconds >= 1.0
    assert sum(window.n for window in result.soak.windows) > 100
    # Alone and back to back it is as fast as interleaved, apart from other work on the machine.
    assert 0.2 < result.soak.sustained_us / result.pruned.p50_us < 5
    assert recounted(result, job).soak == result.soak


def test_without_being_asked_there_is_none(tmp_path):
    assert run(job_for(tmp_path, original=LARGE, pruned=SMALL), workspace(tmp_path), lambda event: None).soak is None
