"""Figures in a device's result that are computed from others in it, and results that contradict themselves."""

from dataclasses import replace

import pytest

from catro_deploy.agent.jobs import BenchJob
from catro_deploy.agent.results import BenchResult, Mode, ModeResult, Speedup, Timing
from catro_deploy.errors import MessageError
from catro_deploy.stages.recount import recounted
from tests.agent.test_agent import PROTOCOL

ONE, FOUR = Mode(1), Mode(4)


def times(p50_us: float, samples_us: tuple[float, ...] | None = None) -> Timing:
    return Timing(p50_us, p50_us, p50_us, p50_us, 0.0, 8, samples_us)


def job(*modes: Mode) -> BenchJob:
    return BenchJob("onnxruntime", 1, None, {}, modes, replace(PROTOCOL, block=2))


def result(original_us: float = 800.0, pruned_us: float = 400.0, *, claimed: float = 9.0, ci95=(1.9, 2.1)):
    """By its samples, the first mode is 3 times as fast; a further mode has these medians and no samples."""
    further = ModeResult(times(original_us), times(pruned_us), Speedup(claimed, ci95), FOUR, ("A remark.",))
    return BenchResult(
        original=times(7.0, (300.0,) * 8),
        pruned=times(7.0, (100.0,) * 8),
        speedup=Speedup(9.0, (8.0, 10.0)),
        mode=ONE,
        warnings=(),
        facts=None,  # facts are only passed through
        further=(further,),
    )


def test_a_speedup_without_samples_is_the_ratio_of_its_medians():
    found = recounted(result(), job(ONE, FOUR))
    assert found.speedup == Speedup(3.0, (3.0, 3.0))
    assert (found.original.p50_us, found.pruned.p50_us) == (300.0, 100.0)
    (further,) = found.further
    assert further == replace(result().further[0], speedup=Speedup(2.0, (1.9, 2.1)))


@pytest.mark.parametrize("ci95", [(8.0, 10.0), (1.0, 1.9), (2.1, 1.9), (float("nan"), 3.0)])
def test_an_interval_around_another_speedup_is_refused(ci95):
    with pytest.raises(MessageError, match="does not contain the speedup 2"):
        recounted(result(ci95=ci95), job(ONE, FOUR))


@pytest.mark.parametrize("medians", [(0.0, 400.0), (800.0, 0.0), (-800.0, -400.0)])
def test_a_median_that_no_clock_can_show_is_refused(medians):
    with pytest.raises(MessageError, match=r"A latency of .* us is impossible"):
        recounted(result(*medians), job(ONE, FOUR))


@pytest.mark.parametrize("modes", [(FOUR, ONE), (ONE,), (ONE, FOUR, FOUR), (ONE, Mode(8))])
def test_modes_must_be_the_requested_ones_in_their_order(modes):
    with pytest.raises(MessageError, match="of 2 modes, which are not the requested ones"):
        recounted(result(), job(*modes))
