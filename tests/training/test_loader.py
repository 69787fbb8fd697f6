from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from catro_deploy.data.base import UNKNOWN
from catro_deploy.data.loader import WantedClasses
from catro_deploy.data.pixels import normalise
from catro_deploy.errors import DataError
from catro_deploy.progress import Silent
from catro_deploy.training import TrainingJob, fit
from catro_deploy.training.batches import SplitBatches
from catro_deploy.training.compute import Hardware
from catro_deploy.training.loader import LoaderBatches, LoaderJob, fit_loader, loader_accuracy
from tests.report.made import make_plan
from tests.training.helpers import MEAN, STD, options, separable_split, small_network

HARDWARE = Hardware(torch.device("cpu"), None, torch.contiguous_format)
ALL = WantedClasses(3, (0, 1, 2))
PLAN = make_plan(input_shape=(3, 8, 8))


def numbered(labels, size):
    """Batches of images that contain their own index."""
    images = torch.arange(len(labels)).float().view(-1, 1, 1, 1)
    return list(zip(images.split(size), torch.tensor(labels).split(size), strict=True))


@given(labels=st.lists(st.integers(0, 2), min_size=1, max_size=50), size=st.integers(1, 8))
def test_an_epoch_has_the_wanted_images_once_in_whole_batches(labels, size):
    expected = [(n, (0, 2).index(label)) for n, label in enumerate(labels) if label != 1]
    if len(expected) < 2:
        with pytest.raises(DataError, match=rf"\b2\b.*\b{len(expected)}\b"):
            LoaderBatches(numbered(labels, size), WantedClasses(3, (0, 2)), (1, 1, 1), HARDWARE, options())
        return
    batches = LoaderBatches(numbered(labels, size), WantedClasses(3, (0, 2)), (1, 1, 1), HARDWARE, options())
    full = min(max(min(size, len(labels)), 2), len(expected))
    assert batches.images == len(expected)
    for epoch in (1, 2):
        given = list(batches.epoch(epoch))
        assert [len(new) for _, new in given] == [full] * batches.steps
        found = [
            pair for images, new in given for pair in zip(images.flatten().int().tolist(), new.tolist(), strict=True)
        ]
        assert found == expected[: full * (len(expected) // full)]


class Shrinking:
    """A loader that after the first pass yields only its first ``later`` batches of two images, or none."""

    def __init__(self, later):
        self.later, self.passes = later, 0

    def __iter__(self):
        self.passes += 1
        return iter(numbered([0, 1] * 4, 2)[: None if self.passes == 1 else self.later])


def test_an_epoch_that_a_pass_does_not_fill_continues_with_the_next():
    batches = LoaderBatches(Shrinking(2), WantedClasses(2, (0, 1)), (1, 1, 1), HARDWARE, options())
    found = [images.flatten().int().tolist() for images, _ in batches.epoch(1)]
    assert found == [[0, 1], [2, 3], [0, 1], [2, 3]]


def test_a_loader_that_is_used_up_is_an_error_and_no_endless_loop():
    batches = LoaderBatches(Shrinking(0), WantedClasses(2, (0, 1)), (1, 1, 1), HARDWARE, options())
    with pytest.raises(DataError, match="no images"):
        list(batches.epoch(1))


def test_a_generator_is_refused():
    with pytest.raises(DataError, match="list_iterator"):
        LoaderBatches(iter(numbered([0, 1], 2)), WantedClasses(2, (0, 1)), (1, 1, 1), HARDWARE, options())


@pytest.mark.parametrize("mixing", [{"mixup": 1.0}, {"cutmix": 1.0}], ids=str)
def test_images_and_their_labels_are_mixed_within_a_batch(mixing):
    images = torch.eye(4).view(4, 4, 1, 1).expand(4, 4, 8, 8)  # image i is 1 in channel i only
    loader = [(images, torch.arange(4))]
    wanted = WantedClasses(5, (0, 1, 2, 3))
    batches = LoaderBatches(loader, wanted, (4, 8, 8), HARDWARE, options(**mixing))
    (found, shares), (other, _) = (next(batches.epoch(number)) for number in (1, 2))
    torch.testing.assert_close(found.mean(dim=(2, 3)), shares, atol=0.01, rtol=0)
    assert (shares.max(1).values < 1).any()
    assert not torch.equal(found, other)
    unlabelled = LoaderBatches([images], wanted, (4, 8, 8), HARDWARE, options(**mixing))
    assert next(unlabelled.epoch(1))[1].tolist() == [UNKNOWN] * 4


class Passes:
    """A loader whose n-th pass yields the batches of the split's epoch n - 1; the first pass, those of epoch 1."""

    def __init__(self, batches):
        self.batches, self.passes = batches, 0

    def __iter__(self):
        self.passes += 1
        return self.batches.epoch(max(1, self.passes - 1))


@pytest.mark.parametrize("mixing", [{}, {"mixup": 0.5}, {"mixup": 0.5, "cutmix": 1.0}], ids=str)
def test_the_same_batches_from_a_loader_and_from_a_split_give_the_same_weights(tmp_path, mixing):
    unmixed = options(augment="none", distill=0.5)
    settings = unmixed.model_copy(update=mixing)
    train, held_out = separable_split(64), separable_split(21, seed=1)
    expected, found, teacher = small_network(), small_network(), small_network(seed=1)
    job = TrainingJob(expected, train, held_out, settings, MEAN, STD, "", teacher, settings.distill)
    history = fit(job, tmp_path / "state", Silent())
    validation = [(normalise(held_out.pixels, MEAN, STD), torch.from_numpy(held_out.labels))]
    loader = Passes(SplitBatches(train, unmixed, MEAN, STD, HARDWARE))
    by_loader = fit_loader(LoaderJob(found, loader, validation, ALL, PLAN, settings, small_network(seed=1)), Silent())
    for name, tensor in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
    assert [epoch.loss for epoch in by_loader.epochs] == [epoch.loss for epoch in history.epochs]
    assert by_loader.validation_accuracy == history.validation_accuracy
    assert by_loader.baseline_validation_accuracy == history.baseline_validation_accuracy
    assert (by_loader.images, by_loader.device) == (64, "cpu")
    assert not found.training


def test_a_seed_decides_how_a_loader_shuffles():
    split = separable_split(48)
    dataset = TensorDataset(normalise(split.pixels, MEAN, STD), torch.from_numpy(split.labels))
    weights = []
    for seed in (1, 1, 2):
        network = small_network()
        loader = DataLoader(dataset, batch_size=16, shuffle=True)
        fit_loader(LoaderJob(network, loader, None, ALL, PLAN, options(epochs=2, seed=seed)), Silent())
        weights.append(torch.cat([tensor.flatten() for tensor in network.parameters()]))
        torch.rand(1)  # advance the global generator between the trainings
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_accuracy_counts_the_wanted_images_only():
    # The logits are the image's two values: 3 of the 4 images of classes 0 and 2 are classified correctly.
    images = torch.tensor([[5.0, 1.0], [1.0, 5.0], [5.0, 1.0], [5.0, 1.0], [0.0, 9.0]]).view(5, 2, 1, 1)
    labels = torch.tensor([0, 2, 2, 0, 1])
    batches = WantedClasses(3, (0, 2)).batches([(images[:3], labels[:3]), (images[3:], labels[3:])], (2, 1, 1))
    model = nn.Flatten()
    assert loader_accuracy(model, batches, HARDWARE) == 0.75
    assert model.training
    with pytest.raises(DataError, match=r"validation.* no images"):
        loader_accuracy(model, chain(), HARDWARE)
