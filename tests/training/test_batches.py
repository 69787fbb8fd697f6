"""Batches of an epoch: which images, in which order, read when."""

import pytest
import torch
from torch import nn

from catro_deploy.data.base import Subset
from catro_deploy.errors import DataError
from catro_deploy.training.batches import SplitBatches, seed_of
from catro_deploy.training.compute import Hardware, choose_hardware
from tests.training.helpers import MEAN, STD, options, separable_split, small_network


@pytest.mark.parametrize(("count", "steps", "size"), [(90, 5, 16), (32, 2, 16), (17, 1, 16), (10, 1, 10), (2, 1, 2)])
def test_only_a_split_smaller_than_a_batch_is_an_incomplete_one(count, steps, size):
    hardware = Hardware(torch.device("cpu"), None, torch.contiguous_format)
    batches = SplitBatches(separable_split(count), options(), MEAN, STD, hardware)
    shapes = [(images.shape, labels.shape) for images, labels in batches.epoch(1)]
    assert batches.steps == steps
    assert shapes == [((size, 3, 8, 8), (size,))] * steps


def test_epochs_differ_and_repeat():
    hardware = Hardware(torch.device("cpu"), None, torch.contiguous_format)
    batches = SplitBatches(Subset(separable_split(90), (0, 2)), options(), MEAN, STD, hardware)
    first, again, second = (torch.cat([i for i, _ in batches.epoch(n)]) for n in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert len({seed_of(s, e, k) for s in range(3) for e in range(3) for k in range(3)}) == 27


class OnDisk:
    """A split that is not in memory; ``read`` are the batches that were asked for."""

    def __init__(self, split, fails_at=None):
        self._split, self._fails_at = split, fails_at
        self.labels, self.read = split.labels, 0

    def images(self, indices):
        self.read += 1
        if self.read == self._fails_at:
            raise DataError("An image is gone.", "Put it back.")
        return self._split.images(indices)


def test_images_that_are_not_in_memory_are_read_one_batch_ahead():
    held, hardware = separable_split(90), choose_hardware(small_network(), "cpu", amp=False)
    split = OnDisk(held)
    there = list(SplitBatches(held, options(), MEAN, STD, hardware).epoch(1))
    ahead = SplitBatches(split, options(), MEAN, STD, hardware).epoch(1)
    assert torch.equal(next(ahead)[0], there[0][0])
    ahead.close()  # waits for what is being read
    assert split.read == 2
    again = SplitBatches(split, options(), MEAN, STD, hardware).epoch(1)
    for (images, labels), (expected, own) in zip(again, there, strict=True):
        assert torch.equal(images, expected)
        assert torch.equal(labels, own)


def test_an_image_that_cannot_be_read_ends_the_epoch():
    hardware = choose_hardware(small_network(), "cpu", amp=False)
    epoch = SplitBatches(OnDisk(separable_split(90), fails_at=3), options(), MEAN, STD, hardware).epoch(1)
    assert len([next(epoch), next(epoch)]) == 2
    with pytest.raises(DataError, match="An image is gone"):
        next(epoch)


def test_labels_go_with_their_images():
    batches = SplitBatches(
        separable_split(90), options(augment="none"), MEAN, STD, choose_hardware(nn.Flatten(), "cpu", False)
    )
    for images, labels in batches.epoch(3):
        assert torch.equal(images.mean(dim=(2, 3)).argmax(dim=1), labels)
