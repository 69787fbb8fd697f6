"""Which widths are swept, which are efficient, and networks in which neighbours have all pairs of widths."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.latency.widths import efficient_widths, latin_square, period, sweep_widths


def staircase(width: int, step: int) -> float:
    """Whole blocks of ``step`` channels are computed, at a fixed extra cost."""
    return 20.0 + 10.0 * math.ceil(width / step)


def test_a_narrow_group_is_swept_whole():
    assert sweep_widths(7, 3) == (3, 4, 5, 6, 7)
    assert sweep_widths(64, 3) == tuple(range(3, 65))


def test_of_a_wide_group_multiples_of_a_power_of_two_are_swept():
    assert sweep_widths(256, 3) == (3, *range(4, 257, 4))
    assert sweep_widths(300, 3)[:5] == (3, 4, 8, 16, 24)
    assert sweep_widths(300, 3)[-2:] == (296, 300)


@pytest.mark.parametrize(("width", "swept"), [(1, (1,)), (2, (2,)), (3, (3,)), (4, (3, 4))])
def test_a_group_as_narrow_as_the_smallest_width(width, swept):
    assert sweep_widths(width, 3) == swept


@given(width=st.integers(1, 5000), smallest=st.integers(1, 8))
def test_a_sweep_is_short_and_has_both_ends(width, smallest):
    swept = sweep_widths(width, smallest)
    assert list(swept) == sorted(set(swept))
    assert (swept[0], swept[-1]) == (min(smallest, width), width)
    assert len(swept) <= 64 + math.log2(max(width / 64, 1)) + 2


@given(
    times=st.lists(st.floats(1, 1000), min_size=1, max_size=90),
    most=st.integers(2, 13),
    first=st.integers(1, 5),
)
def test_no_useful_width_is_slower_than_a_wider_one(times, most, first):
    widths = range(first, first + len(times))
    useful = efficient_widths(widths, times, most)
    at = dict(zip(widths, times, strict=True))
    assert set(useful) <= set(widths)
    assert list(useful) == sorted(set(useful))
    assert 1 <= len(useful) <= most
    assert useful[-1] == widths[-1]
    for width in useful:
        assert all(at[width] < at[wider] for wider in widths if wider > width)
    # No width that is clearly faster than the narrowest of them was left out.
    assert min(times) >= 0.99 * at[useful[0]]


@given(step=st.sampled_from([1.0, 0.3, 7.0]), width=st.integers(20, 200), most=st.integers(2, 13))
def test_where_each_channel_costs_the_same_the_narrowest_and_as_many_as_allowed_are_taken(step, width, most):
    widths = range(3, width + 1)
    useful = efficient_widths(widths, [step * w for w in widths], most)
    assert (useful[0], useful[-1]) == (3, width)
    assert len(useful) >= most - 3  # parts of the range between two integers contain no width


def test_a_planted_cliff_is_avoided():
    """15 channels take longer than 16, and 31 than 32; 12 take the same as 13."""
    widths = (8, 12, 13, 15, 16, 31, 32)
    times = (300, 400, 400, 950, 550, 3300, 1700)
    assert efficient_widths(widths, times, 13) == (8, 13, 16, 32)


def test_times_that_differ_by_noise_count_as_one_stair():
    assert efficient_widths((4, 5, 6, 7, 8), (100.0, 99.5, 100.2, 99.7, 100.0), 13) == (8,)
    assert efficient_widths((4, 5, 6, 7, 8), (90.0, 99.5, 100.2, 99.7, 100.0), 13) == (4, 8)


@pytest.mark.parametrize("step", [8, 16])
@pytest.mark.parametrize("width", [64, 96, 128, 256, 512])
def test_the_period_of_a_planted_staircase_is_found(width, step):
    widths = sweep_widths(width, 3)
    useful = efficient_widths(widths, [staircase(w, step) for w in widths], 13)
    assert all(w % step == 0 for w in useful)
    if widths[-1] - widths[-2] < step:  # otherwise only its multiples were swept
        assert period(widths, useful) == step


@pytest.mark.parametrize("each", [2, 4, 8])
def test_the_period_counts_what_the_widths_count(each):
    """64 convolution groups of ``each`` channels on stairs of 32 channels: a stair is 32 / ``each`` groups long."""
    widths = sweep_widths(64, 3)
    useful = efficient_widths(widths, [staircase(each * width, 32) for width in widths], 13)
    assert all(each * width % 32 == 0 for width in useful)
    assert period(widths, useful) == 32 // each


@pytest.mark.parametrize("each", [3, 5, 12])
@pytest.mark.parametrize("width", [160, 500])
def test_the_ends_of_stairs_are_swept_where_a_width_counts_any_number_of_channels(each, width):
    """When not all widths are swept, multiples of 32 convolution groups are: whole stairs of 32 channels."""
    swept = sweep_widths(width, 3)
    assert set(range(32, width + 1, 32)) <= {w for w in swept if each * w % 32 == 0}


@pytest.mark.parametrize("width", [16, 64, 96, 256, 512, 2048])
def test_a_ramp_has_no_period(width):
    widths = sweep_widths(width, 3)
    useful = efficient_widths(widths, [5.0 + w for w in widths], 13)
    assert period(widths, useful) == 1


def test_too_few_widths_have_no_period():
    assert period((3,), (3,)) == 1
    assert period((3, 4, 5, 6, 7, 8), (8,)) == 1


def pairs(square: list[dict[str, int]], one: str, other: str) -> Counter:
    return Counter((network[one], network[other]) for network in square)


def test_a_square_of_two_groups_by_hand():
    """Three widths each: nine networks, in which each pair occurs once."""
    square = latin_square({"a": (1, 2, 3), "b": (10, 20, 30)}, {"a": ["b"], "b": ["a"]}, np.random.default_rng(0))
    assert pairs(square, "a", "b") == {(a, b): 1 for a in (1, 2, 3) for b in (10, 20, 30)}


def test_candidates_fewer_than_the_side_by_hand():
    """The side is 5, so two widths are dealt 3 and 2 times, or 2 and 3: they occur in 15 and 10 networks."""
    square = latin_square({"a": (1, 2, 3, 4, 5), "b": (10, 20)}, {"a": ["b"], "b": ["a"]}, np.random.default_rng(0))
    assert len(square) == 25
    met = pairs(square, "a", "b")
    assert {met[a, 10] for a in range(1, 6)} | {met[a, 20] for a in range(1, 6)} == {2, 3}
    assert {met[a, 10] + met[a, 20] for a in range(1, 6)} == {5}


@given(
    sizes=st.lists(st.integers(1, 13), min_size=2, max_size=8),
    seed=st.integers(0, 99),
    ring=st.booleans(),
)
def test_neighbours_meet_in_all_pairs_each_as_often_as_its_widths_are_dealt(sizes, seed, ring):
    candidates = {f"g{i}": tuple(range(1, size + 1)) for i, size in enumerate(sizes)}
    names = list(candidates)
    edges = set(pairwise(names))
    if ring and len(names) > 2 and max(sizes) > 2:
        edges.add((names[-1], names[0]))
    neighbours = {n: [b if a == n else a for a, b in sorted(edges) if n in (a, b)] for n in names}
    square = latin_square(candidates, neighbours, np.random.default_rng(seed))
    side = math.isqrt(len(square))
    assert side**2 == len(square)
    assert side >= max(sizes)
    for a, b in edges:
        alone = {n: Counter(network[n] for network in square) for n in (a, b)}
        met = pairs(square, a, b)
        assert all(met[x, y] * side**2 == alone[a][x] * alone[b][y] > 0 for x in candidates[a] for y in candidates[b])
        for n in (a, b):  # as evenly as integers allow
            assert set(alone[n].values()) <= {
                side * (side // len(candidates[n])),
                side * -(-side // len(candidates[n])),
            }


def test_more_neighbours_than_slopes_are_no_error():
    names = [f"g{i}" for i in range(5)]
    everyone = {name: [other for other in names if other != name] for name in names}
    square = latin_square(dict.fromkeys(names, (1, 2)), everyone, np.random.default_rng(0))
    assert len(square) == 4
    assert all({network[name] for network in square} == {1, 2} for name in names)
