import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.data.holdout import hold_out
from catro_deploy.errors import DataError

# A class is a list of the sizes of its units: [3, 1] is a track of three frames and a track of one frame.
CLASSES = st.lists(st.lists(st.integers(1, 4), min_size=2, max_size=12), min_size=1, max_size=5)


def labelled(classes, order_seed):
    """Labels and units of ``classes``, shuffled; units are numbered within their class."""
    pairs = [(c, u) for c, sizes in enumerate(classes) for u, size in enumerate(sizes) for _ in range(size)]
    shuffled = np.random.default_rng(order_seed).permutation(np.array(pairs))
    return shuffled[:, 0].astype(np.int64), shuffled[:, 1]


@given(CLASSES, st.floats(0.01, 0.99), st.integers(0, 2**32), st.integers(0, 99))
def test_sides_part_units_cleanly(classes, share, seed, order_seed):
    labels, units = labelled(classes, order_seed)
    train, validation = hold_out(labels, units, share, seed)
    assert sorted([*train, *validation]) == list(range(len(labels)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(validation) > 0).all()
    for label, sizes in enumerate(classes):
        sides = [set(units[side][labels[side] == label]) for side in (train, validation)]
        assert not sides[0] & sides[1]
        assert sides[0]
        assert sides[1]
        assert abs(len(sides[1]) - share * len(sizes)) <= 1


@given(CLASSES, st.integers(0, 9))
def test_a_class_keeps_its_units_when_others_go(classes, seed):
    labels, units = labelled(classes, 0)
    first = np.flatnonzero(labels == 0)
    _, all_held = hold_out(labels, units, 0.3, seed)
    _, held = hold_out(labels[first], units[first], 0.3, seed)
    assert set(first[held]) == set(all_held) & set(first)


def test_the_seed_decides():
    labels, units = np.zeros(100, dtype=np.int64), range(100)
    held = [hold_out(labels, units, 0.1, seed)[1].tolist() for seed in (0, 0, 1)]
    assert held[0] == held[1] != held[2]
    assert len(held[0]) == 10


def test_text_units_count_like_numbers():
    train, validation = hold_out(np.zeros(4, dtype=np.int64), ["a", "b", "a", "b"], 0.5, 0)
    assert {tuple(train), tuple(validation)} == {(0, 2), (1, 3)}


def test_a_class_of_one_unit_cannot_be_parted():
    with pytest.raises(DataError, match=r"\bClass 1\b.*\b2\b"):
        hold_out(np.array([0, 0, 1, 1]), [0, 1, 0, 0], 0.1, 0)
