"""Percentiles and speedups recomputed from a device's samples: a result may be damaged or edited in transit."""

from collections.abc import Sequence
from dataclasses import replace

from catro_deploy.agent.jobs import BenchJob
from catro_deploy.agent.measure import speedup, timing
from catro_deploy.agent.results import BenchResult, ModeResult, Speedup, Timing
from catro_deploy.errors import MessageError

__all__ = ["recounted"]

MEASURE_AGAIN = "Measure again on the device."


def recounted(result: BenchResult, job: BenchJob) -> BenchResult:
    """``result`` of ``job`` with percentiles and speedup recomputed from its samples.

    Further modes have no samples: their speedups are the ratios of their medians.

    Raises:
        MessageError: samples are missing, not positive or not in whole blocks; a mode was not requested;
            or an interval does not contain its speedup.
    """
    modes = (result.mode, *(one.mode for one in result.further))
    if modes != tuple(job.modes):
        raise MessageError(f"The result is of {len(modes)} modes, which are not the requested ones.", MEASURE_AGAIN)
    original, pruned = (_blocks(one, job.protocol.block) for one in (result.original, result.pruned))
    if len(original) != len(pruned):
        raise MessageError(
            f"The original was measured in {len(original)} blocks, the pruned network in {len(pruned)}.", MEASURE_AGAIN
        )
    return replace(
        result,
        original=replace(timing(original), enqueue_p50_us=result.original.enqueue_p50_us),
        pruned=replace(timing(pruned), enqueue_p50_us=result.pruned.enqueue_p50_us),
        speedup=speedup(original, pruned, job.protocol),
        further=tuple(_with_ratio(one) for one in result.further),
    )


def _blocks(times: Timing, block: int) -> Sequence[Sequence[float]]:
    samples = times.samples_us or ()
    _require_positive(samples)
    if not samples or len(samples) % block:
        raise MessageError(f"There are {len(samples)} samples, not a multiple of {block}, the block.", MEASURE_AGAIN)
    return [samples[start : start + block] for start in range(0, len(samples), block)]


def _with_ratio(one: ModeResult) -> ModeResult:
    _require_positive((one.original.p50_us, one.pruned.p50_us))
    ratio, (low, high) = one.original.p50_us / one.pruned.p50_us, one.speedup.ci95
    if not low <= ratio <= high:
        raise MessageError(f"The interval {low:g} to {high:g} does not contain the speedup {ratio:g}.", MEASURE_AGAIN)
    return replace(one, speedup=Speedup(ratio, (low, high)))


def _require_positive(times_us: Sequence[float]) -> None:
    if wrong := [value for value in times_us if value <= 0]:
        raise MessageError(f"A latency of {wrong[0]:g} us is impossible.", MEASURE_AGAIN)
