"""augment = "photos", RandAugment, mixup and CutMix as in torchvision, with seeds from the image, step and epoch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from catro_deploy.data.base import MemorySplit, Subset
from catro_deploy.data.files import FileSplit
from catro_deploy.data.form import ImageForm
from catro_deploy.training.batches import SplitBatches
from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.objective import Objective
from catro_deploy.training.photos import mixed
from catro_deploy.training.world import World
from tests.training.helpers import MEAN, STD, assert_same_bits, options, separable_split, train

CPU = choose_hardware(nn.Flatten(), "cpu", amp=False)


@pytest.fixture
def files(tmp_path):
    """Photographs of 60x40 pixels in three classes, each with its own colour; the network's input is 16x16."""
    rng, paths = np.random.default_rng(0), []
    for number in range(48):
        pixels = rng.integers(0, 90, (40, 60, 3))
        pixels[..., number % 3] += 130
        paths.append(tmp_path / f"{number:02d}.png")
        Image.fromarray(pixels.astype(np.uint8)).save(paths[-1])

    def split(workers=0):
        return FileSplit(paths, np.arange(48) % 3, ImageForm((16, 16), 3), remember=True, workers=workers)

    return split


def batches(split, world=None, **changes):
    settings = options(**{"augment": "photos", "batch_size": 8, **changes})
    return SplitBatches(split, settings, MEAN, STD, CPU, *([world] if world else []))


def images_of(source, epoch=1, first=0):
    return [images for images, _ in source.epoch(epoch, first)]


VARIANTS = [{}, {"randaugment": 9}, {"mixup": 0.2, "cutmix": 1.0}]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("workers", [1, 2])
def test_batches_do_not_depend_on_workers_nor_on_where_the_epoch_begins(files, changes, workers):
    alone = images_of(batches(files(), **changes))
    assert len(alone) == 6
    helped = images_of(batches(files(workers), **changes))
    late = images_of(batches(files(workers), **changes), first=4)
    assert all(torch.equal(one, other) for one, other in zip(alone, helped, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(alone[4:], late, strict=True))
    assert not torch.equal(alone[0], images_of(batches(files(), **changes), epoch=2)[0])


def test_processes_make_the_parts_of_the_whole_batch_and_read_only_them(files, monkeypatch):
    whole = images_of(batches(files(), randaugment=5))
    read, framed = [], FileSplit.framed
    monkeypatch.setattr(FileSplit, "framed", lambda self, places, _: read.extend(places) or framed(self, places, _))
    parts = [images_of(batches(files(), World(rank, 2), randaugment=5)) for rank in range(2)]
    assert all(torch.equal(one, torch.cat(both)) for one, both in zip(whole, zip(*parts, strict=True), strict=True))
    assert sorted(read) == list(range(48))


def test_crops_are_cut_from_the_files(files):
    """At the network's input size the noise of the files is averaged out; a small crop of the file preserves it."""
    found = torch.cat(images_of(batches(Subset(files(), (0, 1, 2)), crop_scale=0.08)))
    small = files()
    memory = MemorySplit(small.images(range(48)), small.labels)
    other = torch.cat(images_of(batches(memory, crop_scale=0.08)))
    assert found.shape == other.shape == (48, 3, 16, 16)

    def detail(images):
        return images.diff(dim=-1).abs().mean()

    assert detail(found) > 1.5 * detail(other)


def test_files_are_trained_on_without_being_held(files, tmp_path):
    model, history = train(tmp_path, split=files(1), validation=separable_split(21, 1, 16), augment="photos", epochs=2)
    again, _ = train(tmp_path / "b", split=files(2), validation=separable_split(21, 1, 16), augment="photos", epochs=2)
    assert history.images == 48
    assert_same_bits(model, again)


@pytest.mark.parametrize("changes", [{"mixup": 0.5}, {"cutmix": 1.0}, {"mixup": 0.5, "cutmix": 1.0}], ids=str)
def test_labels_are_mixed_as_images_are(changes):
    images = torch.eye(4).view(4, 4, 1, 1).expand(4, 4, 8, 8).contiguous()  # image i is 1 in channel i only
    found, shares = mixed(images, torch.arange(4), 4, options(**changes), seed=1)
    torch.testing.assert_close(found.mean(dim=(2, 3)), shares, atol=0.01, rtol=0)
    assert (shares.sum(1) - 1).abs().max() < 1e-6
    assert (shares.max(1).values < 1).any()
    again, _ = mixed(images, torch.arange(4), 4, options(**changes), seed=1)
    assert torch.equal(found, again)


def test_unknown_labels_stay_when_images_are_mixed():
    images = torch.rand(4, 3, 8, 8)
    found, labels = mixed(images, torch.full((4,), -1), 0, options(mixup=1.0), seed=0)
    assert labels.tolist() == [-1] * 4
    assert not torch.equal(found, images)


def test_the_loss_of_mixed_labels_by_hand():
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    shares = torch.tensor([[0.3, 0.7]])  # the third class has no images
    log = F.log_softmax(logits, dim=1)[0]
    loss = Objective(CPU)(logits, torch.empty(1, 3, 2, 2), shares)
    torch.testing.assert_close(loss, -(0.3 * log[0] + 0.7 * log[1]))


@pytest.mark.parametrize("changes", VARIANTS[1:], ids=str)
def test_trainings_learn_with_each(tmp_path, changes):
    _, history = train(tmp_path, epochs=10, augment="none", **changes)
    assert history.validation_accuracy > 0.9
