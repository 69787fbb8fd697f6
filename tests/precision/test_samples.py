import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.data.base import MemorySplit
from catro_deploy.errors import DataError
from catro_deploy.precision.samples import draw_samples, evenly

LABELS = np.array([0, 1, 0, 2, 1, 0, 0, 2])


def split(labels=LABELS):
    pixels = torch.arange(len(labels) * 3 * 4, dtype=torch.uint8).view(len(labels), 3, 2, 2)
    return MemorySplit(pixels, labels)


def test_each_class_gives_as_many_images_and_a_seed_gives_the_same():
    found = draw_samples(split(), ("a", "b", "c"), 2, seed=0)
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2]
    again = draw_samples(split(), ("a", "b", "c"), 2, seed=0)
    assert found.sha256 == again.sha256
    others = {draw_samples(split(), ("a", "b", "c"), 2, seed).sha256 for seed in range(8)}
    assert len(others) > 1


def test_they_are_normalised_as_in_training():
    found = draw_samples(split(), ("a", "b", "c"), 1, seed=0)
    expected = (found.pixels / 255 - np.array([0.5, 0.4, 0.3]).reshape(1, 3, 1, 1)) / 0.25
    np.testing.assert_allclose(found.normalised((0.5, 0.4, 0.3), (0.25,) * 3), expected, rtol=1e-5)


def test_a_class_without_images_is_named():
    with pytest.raises(DataError, match=r"\bd\b"):
        draw_samples(split(), ("a", "b", "c", "d"), 2, seed=0)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 9), st.integers(0, 5))
def test_even_shares(labels, per_class, seed):
    labels = np.array(labels)
    places = evenly(labels, per_class, seed)
    assert len(set(places.tolist())) == len(places)
    counts, taken = np.bincount(labels, minlength=5), np.bincount(labels[places], minlength=5)
    assert taken.tolist() == np.minimum(counts, per_class).tolist()


def test_without_labels_there_are_as_many_of_any_class():
    unlabelled = split(np.full(8, -1))
    found = draw_samples(unlabelled, ("a", "b"), 3, seed=0)
    assert found.labels.tolist() == [-1] * 6
    assert len(np.unique(found.pixels.reshape(6, -1), axis=0)) == 6
    assert len(draw_samples(unlabelled, ("a", "b"), 9, seed=0).labels) == 8
