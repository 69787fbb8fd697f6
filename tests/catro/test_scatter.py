"""Scatter against its definition by N x N matrices, and under every split of the samples into batches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.catro import scatter
from catro_deploy.catro.scatter import Scatter, ScatterMeter
from catro_deploy.errors import DataError, NumericsError


def by_matrices(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """diag(O (Lambda - G) O^T) for the Fisher weights of the paper; features are (N, channels, positions)."""
    count = len(labels)
    same = labels[:, None] == labels[None, :]
    sizes = np.array([(labels == label).sum() for label in labels])
    weights_within = same / sizes[:, None]
    weights_between = 1 / count - weights_within
    laplacian_within = np.diag(weights_within.sum(1)) - weights_within
    laplacian_between = np.diag(weights_between.sum(1)) - weights_between
    channels = features.astype(np.float64).transpose(1, 2, 0)  # (channels, positions, N)
    between = np.einsum("cpn,nm,cpm->c", channels, laplacian_between, channels)
    within = np.einsum("cpn,nm,cpm->c", channels, laplacian_within, channels)
    return between, within


def measured(features: np.ndarray, labels: np.ndarray, batch: int) -> Scatter:
    meter = ScatterMeter("layer")
    for label in np.unique(labels):
        mine = torch.from_numpy(features[labels == label])
        for start in range(0, len(mine), batch):
            meter.add(mine[start : start + batch], int(label))
    return meter.scatter()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    channels=st.integers(1, 5),
    batch=st.integers(1, 12),
    offset=st.sampled_from([0.0, 100.0]),
)
def test_equals_the_laplacian_definition(seed, sizes, channels, batch, offset):
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    features = (random.normal(size=(len(labels), channels, 2, 3)) + offset).astype(np.float32)
    found = measured(features, labels, batch)
    between, within = by_matrices(features.reshape(len(labels), channels, 6), labels)
    scale = max(1.0, float((between + within).max()))
    # The definition itself cancels: its terms are of the size of the squared offset times N.
    tolerance = 1e-5 * scale + 1e-10 * offset**2 * len(labels) ** 2
    np.testing.assert_allclose(found.between, between, atol=tolerance)
    np.testing.assert_allclose(found.within, within, atol=tolerance)


@pytest.mark.parametrize("cached_bytes", [1, 4 * 6 * 9 * 2, 2**20])
def test_channels_are_taken_some_at_a_time(cached_bytes, monkeypatch):
    """One, two (with one left over) or all at a time; also for maps in the channels-last memory format."""
    monkeypatch.setattr(scatter, "CACHED_BYTES", cached_bytes)
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 9)
    features = random.normal(size=(27, 5, 2, 3)).astype(np.float32)
    between, within = by_matrices(features.reshape(27, 5, 6), labels)
    strided = np.ascontiguousarray(features.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for values in (features, strided):
        found = measured(values, labels, 9)
        np.testing.assert_allclose(found.between, between, rtol=1e-5)
        np.testing.assert_allclose(found.within, within, rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.3, -123.4, 1e-20])
@pytest.mark.parametrize("samples", [1, 5, 7, 37, 128, 500, 5000])
def test_constant_maps_have_no_scatter_at_all(value, samples):
    """Whatever the mean of many equal numbers is rounded to."""
    meter = ScatterMeter("layer")
    for label in range(3):
        for _ in range(2):
            meter.add(torch.full((samples, 2, 3, 3), value), label)
    found = meter.scatter()
    assert not found.within.any()
    assert not found.between.any()


def test_the_scatter_of_many_classes_far_from_zero_is_exact():
    """A thousand class means, 0.02 apart at 20: about what float32 can still distinguish."""
    random = np.random.default_rng(0)
    means = 20 + 0.02 * random.normal(size=(1000, 3, 4))
    features = (means.repeat(3, axis=0) + 0.01 * random.normal(size=(3000, 3, 4))).astype(np.float32)
    labels = np.arange(1000).repeat(3)
    found = measured(features, labels, 2)
    exact = features.astype(np.float64)
    of_class = exact.reshape(1000, 3, 3, 4).mean(1)
    np.testing.assert_allclose(found.between, 3 * ((of_class - exact.mean(0)) ** 2).sum((0, 2)), rtol=1e-4)
    np.testing.assert_allclose(found.within, ((exact - of_class.repeat(3, axis=0)) ** 2).sum((0, 2)), rtol=1e-4)


def test_two_classes_by_hand():
    # One channel, one position: class 0 has 1 and 3 (mean 2), class 1 has 7 (mean 7); the mean of all is 11/3.
    meter = ScatterMeter("layer")
    meter.add(torch.tensor([[1.0], [3.0]]), 0)
    meter.add(torch.tensor([[7.0]]), 1)
    scatter = meter.scatter()
    assert scatter.within[0] == pytest.approx(1 + 1)
    assert scatter.between[0] == pytest.approx(2 * (2 - 11 / 3) ** 2 + (7 - 11 / 3) ** 2)


def test_small_variation_on_a_large_offset_is_not_lost():
    # total - between in float32 would give 0 or noise here: 1000^2 * 64 against a within-scatter of 64 * 0.01^2.
    steps = torch.tensor([0.01, -0.01]).repeat(32).unsqueeze(1)
    meter = ScatterMeter("layer")
    meter.add(1000 + steps, 0)
    meter.add(1001 + steps, 1)
    assert meter.scatter().within[0] == pytest.approx(128 * 0.01**2, rel=0.02)  # 1000.01 itself is rounded in float32


def test_a_class_in_two_pieces_is_refused():
    meter = ScatterMeter("layer")
    meter.add(torch.ones(1, 2), 0)
    meter.add(torch.ones(1, 2), 1)
    with pytest.raises(ValueError, match=r"\bclass 0\b"):
        meter.add(torch.ones(1, 2), 0)


def test_one_class_is_too_few():
    meter = ScatterMeter("layer")
    meter.add(torch.ones(2, 2), 0)
    with pytest.raises(DataError, match="--classes"):
        meter.scatter()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_named_with_their_layer(bad):
    meter = ScatterMeter("layer2.0.conv1")
    with pytest.raises(NumericsError, match=r"layer2\.0\.conv1"):
        meter.add(torch.tensor([[1.0, bad], [0.0, 1.0]]), 0)


def test_normalised_has_a_mean_total_of_one():
    scatter = Scatter(np.array([1.0, 3.0]), np.array([2.0, 2.0])).normalised()
    assert scatter.mean_total == pytest.approx(1)
    assert scatter.between.tolist() == [0.25, 0.75]
