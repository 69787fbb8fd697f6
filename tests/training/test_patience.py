"""Early stopping by validation accuracy, with the weights of the best epoch."""

import copy

import pytest
import torch

from catro_deploy.training.batches import SplitBatches
from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.loop import Training
from catro_deploy.training.objective import Objective
from tests.training.helpers import (
    MEAN,
    STD,
    STEPS,
    InterruptedTrainingError,
    Recorder,
    assert_same_bits,
    options,
    separable_split,
    small_network,
    train,
    without_seconds,
)


def validating(accuracies):
    """Return the given validation accuracies one by one: before the first epoch, then after each."""
    given = iter(accuracies)
    return lambda network: next(given)


def trained_with_patience(path, accuracies, patience, epochs=6, **changes):
    settings = options(epochs=epochs, patience=patience, **changes)
    model = small_network()
    hardware = choose_hardware(model, "cpu", amp=False)
    batches = SplitBatches(separable_split(90), settings, MEAN, STD, hardware)
    training = Training(model, batches, Objective(hardware), validating(accuracies), settings, hardware)
    weights, recorder = [], Recorder()
    training.start(path, "x", recorder)
    training.run(
        path, recorder, "test", lambda epoch: weights.append(copy.deepcopy(training.final_network.state_dict()))
    )
    return training.finish(90), model, weights, recorder


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_plateau_ends_it_with_the_best_weights(tmp_path, ema):
    """The second epoch is the last that is better than all before. Of the best ones, the last, the third, is kept."""
    reached = [0.1, 0.5, 0.7, 0.7, 0.6, 0.69, 0.9]
    history, model, weights, recorder = trained_with_patience(tmp_path / "s", reached, patience=2, ema=ema)
    assert [epoch.validation_accuracy for epoch in history.epochs] == reached[1:5]
    assert history.validation_accuracy == 0.7
    assert recorder.notes[2:] == ["no better validation accuracy for 2 epochs: stopping early"]
    assert all(torch.equal(tensor, weights[2][name]) for name, tensor in model.state_dict().items())
    assert not torch.equal(weights[2]["0.weight"], weights[3]["0.weight"])


def test_without_patience_the_last_weights_count(tmp_path):
    history, model, weights, _ = trained_with_patience(tmp_path / "s", [0.1, 0.9, *[0.5] * 5], patience=0)
    assert len(history.epochs) == 6
    assert history.validation_accuracy == 0.5
    assert all(torch.equal(tensor, weights[5][name]) for name, tensor in model.state_dict().items())


def test_the_best_weights_survive_an_interruption(tmp_path):
    variant = {"patience": 3, "epochs": 5}
    unbroken, history = train(tmp_path / "a", **variant)
    with pytest.raises(InterruptedTrainingError):
        train(tmp_path / "b", progress=Recorder(at_step=3 * STEPS + 2), **variant)
    resumed, resumed_history = train(tmp_path / "b", **variant)
    assert_same_bits(unbroken, resumed)
    assert without_seconds(history) == without_seconds(resumed_history)
