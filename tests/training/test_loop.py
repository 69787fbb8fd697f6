import copy
import itertools

import pytest
import torch
from torch import nn

from catro_deploy.data.base import MemorySplit, Subset
from catro_deploy.errors import CheckpointError, DataError, NumericsError, SettingsError
from catro_deploy.progress import Silent
from catro_deploy.training import compiling, fit
from catro_deploy.training.batches import Batches, seed_of
from catro_deploy.training.device import Hardware, choose_hardware
from catro_deploy.training.loop import STEPS_BETWEEN_CHECKS, Training
from catro_deploy.training.objective import Objective
from catro_deploy.training.state import read_state
from tests.training.helpers import (
    MEAN,
    STD,
    InterruptedTrainingError,
    Recorder,
    options,
    separable_split,
    small_network,
)

STEPS = 5  # of an epoch: 90 images in batches of 16


def train(path, model=None, progress=None, split=None, validation=None, teacher=None, distill=0.0, **changes):
    model = model or small_network()
    history = fit(
        model,
        split or separable_split(90),
        validation or separable_split(21, seed=1),
        options(**changes),
        MEAN,
        STD,
        path / "state.safetensors",
        progress or Silent(),
        "test",
        teacher,
        distill,
    )
    return model, history


def assert_same_bits(first, second):
    own, other = first.state_dict(), second.state_dict()
    assert own.keys() == other.keys()
    for name in own:
        assert torch.equal(own[name], other[name]), name


def without_seconds(history):
    return [(e.epoch, e.loss, e.learning_rate, e.validation_accuracy) for e in history.epochs]


@pytest.fixture(params=[{"ema": 0.0}, {"ema": 0.9}, {"amp": False}, {"momentum": 0.0}], ids=str)
def variant(request):
    return request.param


@pytest.mark.parametrize("interrupt_after", [STEPS + 2, 3 * STEPS])
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path, variant, interrupt_after):
    unbroken, history = train(tmp_path / "a", **variant)
    with pytest.raises(InterruptedTrainingError):
        train(tmp_path / "b", progress=Recorder(at_step=interrupt_after), **variant)
    torch.rand(3)  # the global generator's state must not matter
    done = (interrupt_after - 1) // STEPS
    assert len(read_state(tmp_path / "b" / "state.safetensors").epochs) == done
    again = Recorder()
    resumed, resumed_history = train(tmp_path / "b", progress=again, **variant)
    assert again.notes == [f"going on from epoch {done} of 4"]
    assert again.bars["test"] == (4 * STEPS, done * STEPS)
    assert again.steps == (4 - done) * STEPS
    assert_same_bits(unbroken, resumed)
    assert without_seconds(history) == without_seconds(resumed_history)
    assert history.baseline_validation_accuracy == resumed_history.baseline_validation_accuracy


def test_a_finished_training_is_not_done_again(tmp_path):
    first, history = train(tmp_path)
    recorder = Recorder()
    second, again = train(tmp_path, progress=recorder)
    assert recorder.steps == 0
    assert_same_bits(first, second)
    assert again == history


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.01},
        {"epochs": 5},
        {"model": small_network(seed=9)},
        {"split": separable_split(93)},
        {"teacher": small_network(seed=3), "distill": 0.5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_training_starts_anew(tmp_path, change):
    train(tmp_path)
    recorder = Recorder()
    _, history = train(tmp_path, progress=recorder, **change)
    assert "starting anew" in recorder.notes[0]
    assert recorder.steps == len(history.epochs) * STEPS


def test_a_damaged_state_is_refused_and_left(tmp_path):
    train(tmp_path)
    path = tmp_path / "state.safetensors"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CheckpointError, match="cannot be read"):
        train(tmp_path)
    assert path.stat().st_size == 500


def test_divergence_is_named_and_the_last_good_state_stays(tmp_path):
    model = small_network()

    def explode():
        with torch.no_grad():
            model[0].weight.fill_(float("inf"))

    # The cosine falls from step 5 (0.05 at the end of the warm-up) on: (1 + cos(2/15 * 180 degrees)) / 2 = 0.957.
    with pytest.raises(NumericsError, match=r"the loss is not finite in epoch 2, step 3 of 5, .* 0\.0478") as caught:
        train(tmp_path, model=model, progress=Recorder(at_step=STEPS + 2, act=explode), ema=0.0)
    assert "Lower learning_rate (now 0.05)" in caught.value.hint
    saved = read_state(tmp_path / "state.safetensors")
    assert len(saved.epochs) == 1
    assert all(torch.isfinite(tensor).all() for tensor in saved.model.values())


def test_a_learning_rate_that_is_far_too_high_is_found(tmp_path):
    with pytest.raises(NumericsError, match=r"Training diverged: .* in epoch 1, step"):
        train(tmp_path, learning_rate=1e30, warmup_epochs=0)
    assert not (tmp_path / "state.safetensors").exists()


def test_divergence_between_two_checks_names_the_first_bad_step(tmp_path):
    class Late(nn.Module):
        """Answers with NaN from its 31st batch on."""

        def __init__(self):
            super().__init__()
            self.body, self.calls = small_network(), 0

        def forward(self, images):
            self.calls += self.training
            return self.body(images) * (float("nan") if self.calls > STEPS_BETWEEN_CHECKS + 5 else 1.0)

    with pytest.raises(NumericsError, match=f"in epoch 1, step {STEPS_BETWEEN_CHECKS + 6} of 45"):
        train(tmp_path, model=Late(), batch_size=2, ema=0.0)


@pytest.mark.parametrize("schedule", ["cosine", "step"])
def test_separable_images_are_learnt(tmp_path, schedule):
    recorder = Recorder()
    model, history = train(tmp_path, progress=recorder, epochs=10, schedule=schedule, ema=0.5)
    assert history.validation_accuracy == 1.0
    assert history.baseline_validation_accuracy < 0.9
    assert history.images == 90
    assert [epoch.epoch for epoch in history.epochs] == list(range(1, 11))
    assert history.epochs[-1].loss < history.epochs[0].loss
    assert recorder.texts[-1].startswith("epoch 10/10, loss 0.")
    assert recorder.texts[-1].endswith("validation 100.00%")
    assert not model.training
    assert all(p.grad is None for p in model.parameters())


def test_the_teacher_teaches_without_labels(tmp_path):
    teacher, _ = train(tmp_path / "teacher", epochs=10)
    split = separable_split(90)
    unlabelled = MemorySplit(split.pixels, split.labels * 0)
    _, history = train(tmp_path / "pupil", split=unlabelled, teacher=teacher, distill=1.0, epochs=10, ema=0.0)
    assert history.validation_accuracy == 1.0


def test_without_validation_images_there_is_no_accuracy(tmp_path):
    _, history = train(tmp_path, validation=separable_split(0), epochs=1)
    assert history.validation_accuracy is None
    assert history.baseline_validation_accuracy is None
    assert history.epochs[0].validation_accuracy is None


def test_fewer_than_two_images_are_refused(tmp_path):
    with pytest.raises(DataError, match="1 training images"):
        train(tmp_path, split=separable_split(1))


@pytest.mark.parametrize(("count", "steps", "size"), [(90, 5, 16), (32, 2, 16), (17, 1, 16), (10, 1, 10), (2, 1, 2)])
def test_only_a_split_smaller_than_a_batch_is_an_incomplete_one(count, steps, size):
    hardware = Hardware(torch.device("cpu"), None, torch.contiguous_format)
    batches = Batches(separable_split(count), options(), MEAN, STD, hardware)
    shapes = [(images.shape, labels.shape) for images, labels in batches.epoch(1)]
    assert batches.steps == steps
    assert shapes == [((size, 3, 8, 8), (size,))] * steps


def test_epochs_differ_and_repeat():
    hardware = Hardware(torch.device("cpu"), None, torch.contiguous_format)
    batches = Batches(Subset(separable_split(90), (0, 2)), options(), MEAN, STD, hardware)
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
    there = list(Batches(held, options(), MEAN, STD, hardware).epoch(1))
    ahead = Batches(split, options(), MEAN, STD, hardware).epoch(1)
    assert torch.equal(next(ahead)[0], there[0][0])
    ahead.close()  # waits for what is being read
    assert split.read == 2
    again = Batches(split, options(), MEAN, STD, hardware).epoch(1)
    for (images, labels), (expected, own) in zip(again, there, strict=True):
        assert torch.equal(images, expected)
        assert torch.equal(labels, own)


def test_an_image_that_cannot_be_read_ends_the_epoch():
    hardware = choose_hardware(small_network(), "cpu", amp=False)
    epoch = Batches(OnDisk(separable_split(90), fails_at=3), options(), MEAN, STD, hardware).epoch(1)
    assert len([next(epoch), next(epoch)]) == 2
    with pytest.raises(DataError, match="An image is gone"):
        next(epoch)


def test_labels_go_with_their_images():
    batches = Batches(
        separable_split(90), options(augment="none"), MEAN, STD, choose_hardware(nn.Flatten(), "cpu", False)
    )
    for images, labels in batches.epoch(3):
        assert torch.equal(images.mean(dim=(2, 3)).argmax(dim=1), labels)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="sees no GPU"):
        train(tmp_path, compute="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_training_on_a_gpu(tmp_path):
    _, history = train(tmp_path, compute="cuda", epochs=10)
    assert history.device == "cuda"
    assert history.validation_accuracy == 1.0


def test_the_callers_random_numbers_are_untouched(tmp_path):
    model = small_network()
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    train(tmp_path, model=model, epochs=1)
    assert torch.equal(torch.rand(4), expected)


def test_the_memory_format_follows_the_widths():
    wide, odd = nn.Conv2d(3, 64, 3), nn.Conv2d(3, 21, 3)
    assert choose_hardware(wide, "cpu", amp=False).memory_format == torch.channels_last
    assert choose_hardware(odd, "cpu", amp=False).memory_format == torch.contiguous_format
    assert choose_hardware(odd, "cpu", amp=False).dtype is None


def test_channels_last_and_back(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))
    model, history = train(tmp_path, model=model, epochs=8, ema=0.0, learning_rate=0.2)
    assert history.validation_accuracy == 1.0
    assert model[0].weight.is_contiguous()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_where_compiling_fails_training_goes_on_without(tmp_path):
    import torch._inductor.config as inductor

    plain, _ = train(tmp_path / "a", epochs=1)
    recorder = Recorder()
    with inductor.patch({"cpp.cxx": ("/no/such/compiler",), "force_disable_caches": True}):
        fallen_back, _ = train(tmp_path / "b", epochs=1, compile=True, progress=recorder)
    assert "torch.compile does not work here" in recorder.notes[0]
    assert_same_bits(plain, fallen_back)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_compiled_training_learns(tmp_path):
    recorder = Recorder()
    _, history = train(tmp_path, epochs=10, compile=True, progress=recorder)
    assert not any("does not work" in note for note in recorder.notes)
    assert history.validation_accuracy == 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("seconds", "taken"), [([1.0, 2.0], True), ([2.0, 1.0], False)])
def test_what_compiling_makes_slower_stays_as_it_is(monkeypatch, seconds, taken):
    """The compiled network takes the first of ``seconds``, the other the second, in every turn."""
    clock = itertools.cycle(seconds)
    monkeypatch.setattr(compiling, "_seconds", lambda *arguments: next(clock))
    model, recorder = small_network(), Recorder()
    hardware = choose_hardware(model, "cpu", amp=False)
    chosen = compiling.compiled(model, torch.rand(4, 3, 8, 8), hardware, recorder)
    assert (chosen is not model) is taken
    assert recorder.notes == (
        [] if taken else ["torch.compile makes a step 2.00 times as long here, training goes on without it"]
    )


def validating(accuracies):
    """Accuracies of the validations in turn: before the first epoch, then after each."""
    given = iter(accuracies)
    return lambda network: next(given)


def trained_with_patience(path, accuracies, patience, epochs=6, **changes):
    settings = options(epochs=epochs, patience=patience, **changes)
    model = small_network()
    hardware = choose_hardware(model, "cpu", amp=False)
    batches = Batches(separable_split(90), settings, MEAN, STD, hardware)
    training = Training(model, batches, Objective(hardware), validating(accuracies), settings, hardware)
    weights, recorder = [], Recorder()
    training.start(path, "x", recorder)
    training.run(
        path, recorder, "test", lambda epoch: weights.append(copy.deepcopy(training.final_network.state_dict()))
    )
    return training.finish(90), model, weights, recorder


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_plateau_ends_it_with_the_best_weights(tmp_path, ema):
    """The best epoch is the third, the last of two equal ones; after two without a better one it is over."""
    reached = [0.1, 0.5, 0.7, 0.7, 0.6, 0.69, 0.9]
    history, model, weights, recorder = trained_with_patience(tmp_path / "s", reached, patience=2, ema=ema)
    assert [epoch.validation_accuracy for epoch in history.epochs] == reached[1:6]
    assert history.validation_accuracy == 0.7
    assert recorder.notes == ["no better on validation images for 2 epochs: ended early"]
    assert all(torch.equal(tensor, weights[2][name]) for name, tensor in model.state_dict().items())
    assert not torch.equal(weights[2]["0.weight"], weights[4]["0.weight"])


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
