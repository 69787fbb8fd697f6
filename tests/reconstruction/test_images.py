"""Images for solving layers and held-out images: all of them, in order, none in both parts."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.reconstruction.images import MOST_HELD_OUT, MixedImages, first_images, split_images

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


def test_no_more_images_are_held_out_than_needed():
    solved, held_out = split_images(batches([100] * 20))
    assert len(torch.cat(held_out)) == MOST_HELD_OUT
    assert torch.equal(torch.cat([*solved, *held_out]), torch.arange(2000))


def mixed(sizes):
    """The images 10, 11, ... in batches of ``sizes``, read from a store that has them in reverse order, less 10."""
    total = sum(sizes)
    return MixedImages(list(torch.arange(total).flip(0)), range(total - 1, -1, -1), sizes, lambda batch: batch + 10)


@given(SIZES, st.integers(1, 40))
def test_mixed_images_are_split_as_batches_in_memory_are(sizes, count):
    parts = (*split_images(mixed(sizes)), first_images(mixed(sizes), count))
    expected = (*split_images(batches(sizes)), first_images(batches(sizes), count))
    for part, whole in zip(parts, expected, strict=True):
        assert [batch.tolist() for batch in part] == [(batch + 10).tolist() for batch in whole]
        assert [len(batch) for batch in part] == part.sizes


def test_mixed_images_are_read_batch_by_batch_only_when_they_are_asked_for():
    read = []

    def finish(batch):
        read.append(batch.tolist())
        return batch

    images = MixedImages(list(torch.arange(6)), [5, 0, 3], [2, 1], finish)
    part = images.part(1, 3)
    assert read == []
    assert part[0].tolist() == [0]
    assert images[1].tolist() == [3]
    assert [batch.tolist() for batch in images[:1]] == [[5, 0]]
    assert read == [[0], [3], [5, 0]]
