import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.agent.jobs import BenchProtocol
from catro_deploy.agent.measure import clocked, measure, percentile, ratio_interval, remarks, speedup, timing
from catro_deploy.agent.results import Speedup, Timing
from tests.agent.measured import facts_of

PROTOCOL = BenchProtocol(
    warmup_s=0.0,
    seconds=0.05,
    min_samples=20,
    limit_s=5.0,
    block=5,
    bootstrap_resamples=400,
    seed=0,
)


def test_percentiles_by_hand():
    """Wikipedia's example of the nearest-rank method: ranks are ceil(p / 100 * 5)."""
    values = [15, 20, 35, 40, 50]
    assert [percentile(values, p) for p in (5, 30, 40, 50, 100)] == [15, 20, 20, 35, 50]


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=60), st.floats(0.5, 100))
def test_a_percentile_is_the_smallest_sample_that_enough_do_not_exceed(samples, percent):
    found = percentile(sorted(samples), percent)
    wanted = math.ceil(percent / 100 * len(samples))
    assert found in samples
    assert sum(sample <= found for sample in samples) >= wanted
    assert sum(sample < found for sample in samples) < wanted


def test_timing_by_hand():
    times = timing([[1.0, 3.0], [2.0, 10.0]])
    assert times.samples_us == (1.0, 3.0, 2.0, 10.0)
    assert (times.p50_us, times.p90_us, times.p99_us, times.n) == (2.0, 10.0, 10.0, 4)
    assert times.mean_us == 4.0
    assert times.cv == pytest.approx(math.sqrt((9 + 1 + 4 + 36) / 4) / 4)


def test_models_take_turns_block_by_block():
    order: list[str] = []
    blocks = measure({name: clocked(lambda name=name: order.append(name)) for name in "AB"}, PROTOCOL, lambda _: None)
    assert [(name, len(list(run))) for name, run in itertools.groupby(order)] == [("A", 5), ("B", 5)] * (
        len(order) // 10
    )
    assert len(blocks["A"]) == len(blocks["B"])
    assert all(len(block) == 5 for model in blocks.values() for block in model)


def test_the_first_inferences_of_each_turn_do_not_count():
    """Each inference returns its number: of five in a turn the first two are missing."""
    places = itertools.count()
    protocol = replace(PROTOCOL, settling=2, block=3, min_samples=6, seconds=0.0)
    blocks = measure(dict.fromkeys("AB", lambda: float(next(places))), protocol, lambda _: None)
    assert blocks == {"A": [[2, 3, 4], [12, 13, 14]], "B": [[7, 8, 9], [17, 18, 19]]}


def test_times_are_microseconds_of_one_inference():
    blocks = measure({"A": clocked(lambda: time.sleep(0.002)), "B": clocked(lambda: None)}, PROTOCOL, lambda _: None)
    us = {name: [us for block in blocks[name] for us in block] for name in "AB"}
    assert 2000 <= min(us["A"]) < 50_000
    assert 0 <= min(us["B"]) < 1000


@pytest.mark.parametrize(
    ("changes", "least_s", "samples"),
    [
        ({"seconds": 0.2, "min_samples": 1}, 0.2, range(1, 10**9)),  # the seconds rule
        ({"seconds": 0.001, "min_samples": 33}, 0.07, range(35, 36)),  # the samples rule, in whole blocks
        ({"seconds": 0.1, "min_samples": 10**6, "limit_s": 0.1}, 0.1, range(5, 10**3)),  # the limit ends it
    ],
)
def test_it_ends_when_seconds_and_samples_are_reached_or_at_the_limit(changes, least_s, samples):
    start = time.perf_counter()
    blocks = measure(
        {name: clocked(lambda: time.sleep(0.001)) for name in "AB"}, replace(PROTOCOL, **changes), lambda _: None
    )
    assert least_s <= time.perf_counter() - start
    assert 5 * len(blocks["A"]) in samples


def test_warm_up_is_not_counted():
    calls = {"A": 0, "B": 0}

    def infer(name):
        calls[name] += 1
        time.sleep(0.001)

    reported: list[float] = []
    protocol = replace(PROTOCOL, warmup_s=0.1, seconds=0.01, min_samples=5)
    blocks = measure({name: clocked(lambda name=name: infer(name)) for name in "AB"}, protocol, reported.append)
    assert calls["A"] - 5 * len(blocks["A"]) >= 5
    assert reported == sorted(reported)
    assert reported[-1] >= 0.11


def blocks_around(centre_us: float, turns: int, generator: np.random.Generator, noise: np.ndarray) -> list[list[float]]:
    own = generator.normal(1, 0.02, (turns, 10))
    return (centre_us * own * noise[:, None]).tolist()


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says():
    """200 simulated measurements with a ratio of 1.25 and disturbances that affect whole turns."""
    generator = np.random.default_rng(3)
    hits = 0
    for seed in range(200):
        disturbance = generator.lognormal(0, 0.1, 60)
        original = blocks_around(1250, 60, generator, disturbance)
        pruned = blocks_around(1000, 60, generator, disturbance)
        low, high = ratio_interval(original, pruned, 200, seed)
        assert low <= high
        hits += low <= 1.25 <= high
    assert hits >= 180  # 95% of 200 are 190; fewer than 180 would be three standard deviations off


def test_the_interval_of_a_speedup_contains_it():
    """With only two resamples, both ratios are often on the same side of the measured one."""
    generator = np.random.default_rng(0)
    for seed in range(20):
        original, pruned = (generator.lognormal(0, 0.1, (9, 3)).tolist() for _ in range(2))
        found = speedup(original, pruned, replace(PROTOCOL, bootstrap_resamples=2, seed=seed))
        assert found.ci95[0] <= found.median <= found.ci95[1]


def test_what_disturbs_many_turns_and_one_network_more_widens_the_interval():
    """Disturbances last about five turns; resampled by turn, the interval would contain the ratio half as often."""
    generator = np.random.default_rng(6)
    turns, kept = 250, math.exp(-1 / 5)
    hits = 0
    for seed in range(100):
        disturbance = [generator.normal()]
        for step in generator.normal(0, math.sqrt(1 - kept**2), turns - 1):
            disturbance.append(kept * disturbance[-1] + step)
        original = blocks_around(1250, turns, generator, np.exp(0.03 * np.array(disturbance)))
        pruned = blocks_around(1000, turns, generator, np.exp(0.10 * np.array(disturbance)))
        low, high = ratio_interval(original, pruned, 100, seed)
        hits += low <= 1.25 <= high
    assert hits >= 75


def test_pairing_makes_a_shared_disturbance_cancel():
    """Turns slow down by up to three times, for both models alike: only with paired turns does the ratio stay known."""
    generator = np.random.default_rng(4)
    disturbance = generator.uniform(1, 3, 100)
    original = blocks_around(2000, 100, generator, disturbance)
    pruned = blocks_around(1000, 100, generator, disturbance)
    low, high = ratio_interval(original, pruned, 500, 0)
    shuffled = [pruned[i] for i in generator.permutation(100)]
    low_unpaired, high_unpaired = ratio_interval(original, shuffled, 500, 0)
    assert low <= 2 <= high
    assert high - low < 0.5 * (high_unpaired - low_unpaired)


def test_the_weighted_bootstrap_is_the_plain_one():
    """The same draws of stretches of three turns, computed by concatenating the drawn blocks and sorting."""
    generator = np.random.default_rng(5)
    original, pruned = (generator.lognormal(size=(12, 4)).tolist() for _ in range(2))
    draws = np.random.default_rng(7)
    ratios = []
    for _ in range(99):
        turns = [(start + at) % 12 for start in draws.integers(12, size=4) for at in range(3)]
        both = [sorted(itertools.chain(*(side[t] for t in turns))) for side in (original, pruned)]
        ratios.append(percentile(both[0], 50) / percentile(both[1], 50))
    expected = percentile(sorted(ratios), 2.5), percentile(sorted(ratios), 97.5)
    assert ratio_interval(original, pruned, 99, 7) == pytest.approx(expected, rel=1e-12)


def test_speedup_is_the_ratio_of_medians():
    ratio = speedup([[2.0, 4.0, 9.0]] * 3, [[1.0, 2.0, 3.0]] * 3, PROTOCOL)
    assert ratio == Speedup(2.0, (2.0, 2.0))


QUIET = {"cores": 4, "load_average": 0.5, "other_load_cores": 0.1}
STEADY = timing([[100.0, 101.0, 102.0]] * 100)
FASTER = Speedup(1.5, (1.4, 1.6))


def remarks_on(original=STEADY, ratio=FASTER, **facts):
    return remarks({"original": original, "pruned": STEADY}, ratio, PROTOCOL, facts_of(**QUIET | facts))


def test_a_quiet_measurement_gets_no_remark():
    assert remarks_on() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"original": timing([[100.0] * 5] * 3)}, ["original", "15 samples of the 20"]),
        ({"original": timing([[100.0, 200.0, 100.0]] * 100)}, ["scatter", "35%"]),
        ({"original": timing([[100.0] * 50, [105.0] * 50, [110.0] * 50])}, ["+10% (original) and +0% (pruned)"]),
        ({"ratio": Speedup(1.0, (0.9, 1.1))}, ["0.900 to 1.100", "no difference"]),
        ({"load_average": 4.5}, ["load average was 4.5 on 4 cores"]),
        ({"other_load_cores": 1.5}, ["1.5 of 4 cores"]),
        ({"cores": 1, "other_load_cores": 0.9}, ["0.9 of 1 core busy"]),
    ],
)
def test_each_doubt_gets_its_remark(changes, words):
    (remark,) = remarks_on(**changes)
    assert all(word in remark for word in words)


@pytest.mark.parametrize(("last", "word"), [(107.0, "slowed by 7%"), (93.0, "sped up by 7%")])
def test_a_change_of_the_machine_that_both_networks_share_is_called_so(last, word):
    drifting = [timing([[start] * 50, [start] * 50, [start * last / 100] * 50]) for start in (100.0, 40.0)]
    (remark,) = remarks(dict(zip(("original", "pruned"), drifting, strict=True)), FASTER, PROTOCOL, facts_of(**QUIET))
    assert remark == f"The machine {word} while measuring; both networks were affected alike."


def test_a_drift_of_the_pruned_network_alone_is_no_change_of_the_machine():
    moved = timing([[100.0] * 50, [100.0] * 50, [110.0] * 50])
    (remark,) = remarks({"original": STEADY, "pruned": moved}, FASTER, PROTOCOL, facts_of(**QUIET))
    assert "+10% (pruned)" in remark
    assert "alike" not in remark


def test_unknown_facts_raise_no_doubt_and_no_error():
    assert remarks_on(cores=None, load_average=None, other_load_cores=None) == []


def test_on_a_gpu_times_must_scatter_less_and_the_host_must_keep_up():
    def said(**times: float) -> list[str]:
        steady = Timing(100.0, 100.0, 100.0, 100.0, cv=0.01, n=100, samples_us=(100.0,) * 9)
        both = replace(steady, **times)
        return remarks({"original": both, "pruned": both}, FASTER, PROTOCOL, facts_of())

    assert said(enqueue_p50_us=70.0) == []
    assert "waits for the host" in said(enqueue_p50_us=81.0)[0]
    assert "coefficient of variation" in said(enqueue_p50_us=7.0, cv=0.03)[0]
    assert said(cv=0.03) == []
