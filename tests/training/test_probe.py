"""Probing of learning rates on small networks: the result is good, reproducible and kept."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy.data.base import MemorySplit
from catro_deploy.data.signs import draw_split
from catro_deploy.training.batches import SplitBatches
from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.gentle import ProbeSize
from catro_deploy.training.objective import Objective
from catro_deploy.training.probe import _best, probe_learning_rates
from catro_deploy.training.state import read_state
from catro_deploy.training.stepper import Stepper
from catro_deploy.training.world import ALONE
from tests.training.helpers import (
    MEAN,
    STD,
    InterruptedTrainingError,
    Recorder,
    assert_same_bits,
    options,
    separable_split,
    small_network,
    train,
    without_seconds,
)
from tests.training.together_script import IMAGES, WAYS

SIZE = ProbeSize(steps=20, held_out=8)
EPOCH_STEPS = IMAGES["gentle"] // 16


@pytest.fixture(scope="module")
def signs():
    """Sixteen classes of drawn signs."""
    pixels = torch.from_numpy(draw_split("train", 640, (16, 16), seed=0).transpose(0, 3, 1, 2).copy())
    return MemorySplit(pixels, np.arange(640) % 16)


@pytest.fixture(scope="module")
def reads_signs(signs, tmp_path_factory):
    """A network that has partly learnt to classify them."""
    folder = tmp_path_factory.mktemp("signs")
    model, _ = train(folder, small_network(16), split=signs, validation=separable_split(0), epochs=6, learning_rate=0.2)
    return model


def probe(model, split, middle, seed=0):
    hardware = choose_hardware(model, "cpu", amp=False)
    settings = options(augment="none", seed=seed)
    stepper = Stepper(model, Objective(hardware), settings, hardware)
    batches = SplitBatches(split, settings, MEAN, STD, hardware)
    return probe_learning_rates(stepper, batches, middle, SIZE, ALONE, Recorder())


def gentle_training(path, progress=None, **changes):
    return train(path, progress=progress, split=separable_split(IMAGES["gentle"]), **WAYS["gentle"] | changes)


def test_the_highest_rate_that_leaves_the_network_better_is_chosen(reads_signs, signs):
    found = probe(copy.deepcopy(reads_signs), signs, 1.0)
    assert found.learning_rates == pytest.approx((1 / 3, 1.0, 3.0))
    assert found.steps == SIZE.steps
    assert found.losses[2] > np.log(16) > found.loss_before  # worse than guessing among the classes
    better = [r for r, loss in zip(found.learning_rates, found.losses, strict=True) if loss < found.loss_before]
    assert found.chosen == (max(better) if better else found.learning_rates[np.argmin(found.losses)])


@pytest.mark.parametrize(
    ("losses", "before", "chosen"),
    [
        ((0.8, 0.9, 1.1), 1.0, 2),
        ((0.8, 0.7, 0.99), 1.0, 3),
        ((1.3, 1.2, 9.0), 1.0, 2),
        ((1.2, 1.2, None), 1.0, 1),
        ((None, None, None), 1.0, 1),
        ((5.0, 4.0, 6.0), None, 3),
    ],
)
def test_of_rates_that_all_harm_the_least_harmful_is_chosen(losses, before, chosen):
    assert _best((1, 2, 3), losses, before) == chosen


def test_for_a_network_that_knows_nothing_a_high_rate_is_chosen(signs):
    found = probe(small_network(16), signs, 0.001)
    assert found.chosen == pytest.approx(0.003)


def test_rates_that_diverge_have_no_loss_and_are_not_chosen(reads_signs, signs):
    found = probe(copy.deepcopy(reads_signs), signs, 1e30)
    assert found.losses == (None, None, None)
    assert found.chosen == found.learning_rates[0]
    json.dumps(found.losses, allow_nan=False)


def test_the_network_is_left_as_it_is_and_so_are_random_numbers(reads_signs, signs):
    model = copy.deepcopy(reads_signs)
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    probe(model, signs, 0.01)
    assert torch.equal(torch.rand(4), expected)
    assert_same_bits(model, reads_signs)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_outcome_follows_from_the_seed(reads_signs, signs):
    first, again, other = (probe(copy.deepcopy(reads_signs), signs, 0.1, seed) for seed in (3, 3, 4))
    assert first == again
    assert first.losses != other.losses


def test_all_rates_have_the_same_batches_and_none_of_the_held_out_ones():
    """Each image has a unique colour, by which the network records which images it has seen."""
    pixels = torch.arange(640, dtype=torch.int32).view(-1, 1, 1, 1)
    coloured = torch.cat([pixels % 256, pixels // 256, pixels * 0], dim=1).to(torch.uint8).expand(-1, -1, 8, 8)
    seen = {True: [], False: []}

    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = small_network()

        def forward(self, images):
            colours = (images[:, :2, 0, 0] * 0.25 + 0.5) * 255
            seen[self.training].append([round(float(red + 256 * green)) for red, green in colours])
            return self.body(images)

    probe(Watched(), MemorySplit(coloured.contiguous(), np.arange(640) % 3), 0.01)
    for batches, count, networks in ((seen[True], SIZE.steps, 3), (seen[False], SIZE.held_out, 4)):
        assert all(batches[0::networks] == batches[one::networks] for one in range(networks))
        assert len(batches) == networks * count
    trained, judged = ({image for batch in seen[training] for image in batch} for training in (True, False))
    assert (len(trained), len(judged)) == (SIZE.steps * 16, SIZE.held_out * 16)
    assert not trained & judged


def test_a_gentle_training_takes_the_rate_that_was_chosen(tmp_path):
    recorder = Recorder()
    _, history = gentle_training(tmp_path, recorder, warmup_epochs=None)
    assert history.probe.steps == 16
    middle = 0.004 * 1.6**0.25 * 16 / 128  # for 160 steps in batches of 16
    assert history.probe.learning_rates == pytest.approx((middle / 3, middle, 3 * middle))
    assert history.probe.chosen == pytest.approx(3 * middle)  # the network knows nothing yet
    assert recorder.notes == [
        "160 training steps: 4 epochs of 40, batches of 16 images",
        "learning rate 0.0017: chosen from 0.00019, 0.00056, 0.0017, tried for 16 steps each",
    ]
    # Along a cosine of 160 steps without warm-up: (1 + cos(39/160 * 180 degrees)) / 2 = 0.8604.
    assert history.epochs[0].learning_rate == pytest.approx(3 * middle * 0.8604, rel=1e-4)


@pytest.mark.parametrize("changes", [{"learning_rate": 0.01}, {"epochs": 3}, {"steps": 149}], ids=str)
def test_no_rates_are_tried_where_one_is_given_or_the_training_is_short(tmp_path, changes):
    _, history = gentle_training(tmp_path, **{"epochs": 4} | changes)
    assert history.probe is None
    highest = changes.get("learning_rate", 0.0045 * 16 / 128)
    assert history.epochs[-1].learning_rate < history.epochs[0].learning_rate < highest


@pytest.mark.parametrize("interrupt_after", [EPOCH_STEPS // 2, 2 * EPOCH_STEPS + 5], ids=["first epoch", "third epoch"])
def test_an_interrupted_gentle_training_ends_with_the_same_bits(tmp_path, interrupt_after):
    unbroken, history = gentle_training(tmp_path / "a")
    with pytest.raises(InterruptedTrainingError):
        gentle_training(tmp_path / "b", Recorder(at_step=interrupt_after))
    saved, in_the_first_epoch = tmp_path / "b" / "state.safetensors", interrupt_after < EPOCH_STEPS
    assert saved.exists() or in_the_first_epoch
    assert in_the_first_epoch or read_state(saved).probe == history.probe
    recorder = Recorder()
    resumed, resumed_history = gentle_training(tmp_path / "b", recorder)
    assert_same_bits(unbroken, resumed)
    assert without_seconds(history) == without_seconds(resumed_history)
    assert history.probe == resumed_history.probe
    assert ("trying learning rates" in recorder.bars) == in_the_first_epoch
