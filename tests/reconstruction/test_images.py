"""Images to solve layers from and held-out ones: all of them, in order, none in both parts."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.reconstruction.images import MOST_HELD_OUT, first_images, split_images

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def batches(sizes):
    return list(torch.arange(sum(sizes)).split(sizes))


@given(SIZES)
def test_a_quarter_is_held_out_and_nothing_is_lost(sizes):
    solved, held_out = split_images(batches(sizes))
    total = sum(sizes)
    if total < 4:
        assert torch.equal(torch.cat(solved), torch.cat(held_out))
    else:
        assert len(torch.cat(held_out)) == total // 4 <= MOST_HELD_OUT
        assert torch.equal(torch.cat([*solved, *held_out]), torch.arange(total))


@given(SIZES, st.integers(1, 40))
def test_the_first_images_keep_their_batches(sizes, count):
    found = first_images(batches(sizes), count)
    assert torch.equal(torch.cat(found), torch.arange(min(count, sum(sizes))))
    assert all(len(batch) for batch in found)


def test_of_many_images_no_more_are_held_out_than_tell_enough():
    solved, held_out = split_images(batches([100] * 20))
    assert len(torch.cat(held_out)) == MOST_HELD_OUT
    assert torch.equal(torch.cat([*solved, *held_out]), torch.arange(2000))
