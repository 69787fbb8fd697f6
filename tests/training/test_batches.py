"""Batches of an epoch: which images they contain, in which order, and when they are read."""

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from catro_deploy.data.base import MemorySplit, Subset
from catro_deploy.data.pixels import constant, normalise, standardise
from catro_deploy.errors import DataError
from catro_deploy.training.batches import SplitBatches, seed_of
from catro_deploy.training.compute import Hardware, choose_hardware
from catro_deploy.training.objective import Objective
from catro_deploy.training.stepper import Stepper
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
    """A split that is not in memory; ``read`` counts the requested batches."""

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


class Recorded(TorchDispatchMode):
    """Records operations that read host memory for a GPU: newly created constants and copies between devices."""

    def __init__(self):
        super().__init__()
        self.copies = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        tensors = [one for one in tree_leaves((arguments, named, result)) if isinstance(one, torch.Tensor)]
        if function is torch.ops.aten.lift_fresh.default or len({tensor.device.type for tensor in tensors}) > 1:
            self.copies.append(str(function))
        return result


def test_a_batch_from_a_gpus_memory_needs_nothing_from_the_host(monkeypatch):
    """On a simulated GPU: PyTorch's fake tensors have a device but compute nothing."""
    generator, fake = torch.Generator, FakeTensorMode(allow_non_fake_inputs=True)
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
    constant.cache_clear()
    with fake, Recorded() as recorded:
        gpu = torch.device("cuda:0")
        pixels = torch.empty((90, 3, 8, 8), dtype=torch.uint8, device=gpu)
        split = MemorySplit(pixels, np.arange(90))
        batches = SplitBatches(split, options(augment="none"), MEAN, STD, Hardware(gpu, None, torch.channels_last))
        epoch = batches.epoch(1)
        next(epoch)
        assert recorded.copies  # the epoch's order, mean and std
        recorded.copies.clear()
        for images, labels in epoch:
            assert (images.device, labels.device) == (gpu, gpu)
    constant.cache_clear()  # it holds fake tensors
    assert recorded.copies == []


def test_a_step_recreates_no_constants():
    hardware = choose_hardware(small_network(), "cpu", amp=False)
    settings = options(saturation=0.2, erase=0.5, distill=0.5, max_grad_norm=5.0)
    objective = Objective(hardware, 0.1, small_network(), 0.5)
    stepper = Stepper(small_network(), objective, settings, hardware)
    epoch = SplitBatches(separable_split(90), settings, MEAN, STD, hardware).epoch(1)
    stepper.step(*next(epoch), 0.1)
    with Recorded() as recorded:
        for images, labels in epoch:
            stepper.step(images, labels, 0.1)
    assert recorded.copies == []


def test_constants_of_inference_can_be_trained_with():
    constant.cache_clear()
    with torch.inference_mode():
        normalise(torch.zeros((1, 3, 2, 2), dtype=torch.uint8), MEAN, STD)
    images = torch.rand(1, 3, 2, 2, requires_grad=True)
    standardise(images, MEAN, STD).sum().backward()
    assert images.grad is not None
