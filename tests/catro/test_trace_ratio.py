"""Algorithm 1 against brute force over all subsets, and its guarantee that the ratio never falls."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.catro.scatter import Scatter
from catro_deploy.catro.trace_ratio import ratio_curve, scores, select, trace_ratio, usable
from catro_deploy.errors import NumericsError


def random_scatter(seed: int, channels: int) -> Scatter:
    random = np.random.default_rng(seed)
    return Scatter(random.gamma(0.7, size=channels), random.gamma(2.0, size=channels) + 1e-3)


def best_by_brute_force(scatter: Scatter, size: int) -> float:
    subsets = combinations(range(len(scatter.between)), size)
    return max(scatter.between[list(s)].sum() / scatter.within[list(s)].sum() for s in subsets)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), channels=st.integers(1, 12), data=st.data())
def test_finds_the_best_of_all_subsets(seed, channels, data):
    size = data.draw(st.integers(1, channels))
    scatter = random_scatter(seed, channels)
    found = select(scatter, size, seed=seed % 1000, epsilon=0.0)
    assert len(set(found.kept)) == size
    assert found.ratio == pytest.approx(best_by_brute_force(scatter, size), rel=1e-12)
    assert trace_ratio(scatter, np.array(found.kept)) == pytest.approx(found.ratio, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), channels=st.integers(2, 40), data=st.data())
def test_no_round_lowers_the_ratio(seed, channels, data):
    size = data.draw(st.integers(1, channels))
    scatter = random_scatter(seed, channels)
    kept = np.random.default_rng(seed).permutation(channels)[:size]
    ratios = [trace_ratio(scatter, kept)]
    for _ in range(6):
        kept = np.argsort(-scores(scatter, ratios[-1], 1.0))[:size]
        ratios.append(trace_ratio(scatter, kept))
    assert all(after >= before * (1 - 1e-12) for before, after in pairwise(ratios))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), channels=st.integers(1, 9))
def test_curve_holds_the_best_ratio_of_every_size(seed, channels):
    scatter = random_scatter(seed, channels)
    expected = [best_by_brute_force(scatter, size) for size in range(1, channels + 1)]
    np.testing.assert_allclose(ratio_curve(scatter, 0.0), expected, rtol=1e-12)


def test_start_does_not_decide_the_end():
    scatter = random_scatter(3, 64)
    assert len({select(scatter, 20, seed=seed, epsilon=0.0).kept for seed in range(10)}) == 1


def test_scores_do_not_depend_on_the_scale_of_the_activations():
    scatter = random_scatter(5, 16)
    larger = Scatter(scatter.between * 1e12, scatter.within * 1e12)
    np.testing.assert_allclose(scores(scatter, 0.3, 0.5), scores(larger, 0.3, 0.5))


def test_scores_by_hand():
    # Mean total scatter is (4 + 2) / 2 = 3; at ratio 0.5: (3 - 0.5) / 3 and (1 - 0.5) / 3.
    scatter = Scatter(np.array([3.0, 1.0]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(scores(scatter, 0.5, 1.0), [2.5 / 3, 0.5 / 3])
    np.testing.assert_allclose(scores(scatter, 0.5, 0.1), [25 / 3, 5 / 3])


def test_a_dead_channel_comes_last_although_it_lowers_no_ratio():
    scatter = usable("layer", Scatter(np.array([5.0, 0.0, 0.1]), np.array([1.0, 0.0, 9.0])))
    assert select(scatter, 2, seed=0, epsilon=0.0).kept == (0, 2)


def test_a_channel_that_never_varies_within_a_class_is_taken_first():
    scatter = usable("layer", Scatter(np.array([1.0, 2.0, 9.0]), np.array([0.0, 1.0, 1.0])))
    found = select(scatter, 1, seed=1, epsilon=0.0)
    assert found.kept == (0,)
    assert np.isfinite(found.ratio)


def test_with_a_ridge_a_strong_channel_comes_before_a_faint_one_of_the_same_ratio():
    # Both have the ratio 0.5. The mean within-scatter is (100 + 1) / 2, so a ridge of 1 makes them 50 / 150.5 and
    # 0.5 / 51.5.
    scatter = usable("layer", Scatter(np.array([50.0, 0.5]), np.array([100.0, 1.0])), ridge=1.0)
    assert select(scatter, 1, seed=0, epsilon=0.0).ratio == pytest.approx(50 / 150.5)
    assert trace_ratio(scatter, np.array([1])) == pytest.approx(0.5 / 51.5)


def test_without_a_ridge_a_faint_channel_comes_before_a_strong_one_of_a_slightly_lower_ratio():
    channels = Scatter(np.array([49.0, 0.5]), np.array([100.0, 1.0]))
    assert select(usable("layer", channels), 1, seed=0, epsilon=0.0).kept == (1,)
    assert select(usable("layer", channels, ridge=1.0), 1, seed=0, epsilon=0.0).kept == (0,)


@pytest.mark.parametrize("between", [[0.0, 0.0], [1.0, 2.0]])
def test_a_dead_layer_is_refused_with_its_name(between):
    with pytest.raises(NumericsError, match=r"(?s)layer1\.0\.conv1.*ignore"):
        usable("layer1.0.conv1", Scatter(np.array(between), np.zeros(2)))


@pytest.mark.parametrize("size", [0, 4])
def test_an_impossible_number_is_refused(size):
    with pytest.raises(ValueError, match=r"\b3\b"):
        select(random_scatter(0, 3), size, seed=0, epsilon=0.0)
