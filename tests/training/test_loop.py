"""The training loop learns, resumes bit-exactly, and reports where it diverges."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from catro_deploy.data.base import MemorySplit
from catro_deploy.errors import CheckpointError, DataError, NumericsError, SettingsError
from catro_deploy.training.loop import STEPS_BETWEEN_CHECKS
from catro_deploy.training.state import read_state, write_state
from tests.training.helpers import (
    STEPS,
    InterruptedTrainingError,
    Recorder,
    assert_same_bits,
    separable_split,
    small_network,
    train,
    without_seconds,
)


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
    assert again.notes == [f"resuming after epoch {done} of 4"]
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
def test_another_training_starts_over(tmp_path, change):
    train(tmp_path)
    recorder = Recorder()
    _, history = train(tmp_path, progress=recorder, **change)
    assert "starting over" in recorder.notes[0]
    assert recorder.steps == len(history.epochs) * STEPS


def test_a_damaged_state_is_refused_and_left(tmp_path):
    train(tmp_path)
    path = tmp_path / "state.safetensors"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"state\.safetensors"):
        train(tmp_path)
    assert path.stat().st_size == 500


@pytest.mark.parametrize("part", ["model", "momentum", "ema", "best"])
@pytest.mark.parametrize("change", ["name", "shape"])
def test_tensors_that_are_not_the_networks_are_refused(tmp_path, part, change):
    with pytest.raises(InterruptedTrainingError):
        train(tmp_path, progress=Recorder(at_step=STEPS + 1), patience=3)
    path = tmp_path / "state.safetensors"
    saved = read_state(path)
    tensors = dict(getattr(saved, part))
    first = tensors.pop("0.weight")
    tensors |= {"0.weighs": first} if change == "name" else {"0.weight": first[1:]}
    write_state(path, replace(saved, **{part: tensors}))
    with pytest.raises(CheckpointError, match="its tensors are not those of the network"):
        train(tmp_path, patience=3)


def test_divergence_is_named_and_the_last_good_state_stays(tmp_path):
    model = small_network()

    def explode():
        with torch.no_grad():
            model[0].weight.fill_(float("inf"))

    # The cosine falls from step 5 (0.05 at the end of the warm-up) on: (1 + cos(2/15 * 180 degrees)) / 2 = 0.957.
    with pytest.raises(NumericsError, match=r"\bloss\b.*\bepoch 2, step 3 of 5\b.* 0\.0478\b") as caught:
        train(tmp_path, model=model, progress=Recorder(at_step=STEPS + 2, act=explode), ema=0.0)
    assert "Lower learning_rate, for instance to a tenth of 0.05," in caught.value.hint
    saved = read_state(tmp_path / "state.safetensors")
    assert len(saved.epochs) == 1
    assert all(torch.isfinite(tensor).all() for tensor in saved.model.values())


def test_a_learning_rate_that_is_far_too_high_is_found(tmp_path):
    with pytest.raises(NumericsError, match=r"\bepoch 1, step \d+ of 5\b"):
        train(tmp_path, learning_rate=1e30, warmup_epochs=0)
    assert not (tmp_path / "state.safetensors").exists()


def test_divergence_between_two_checks_names_the_first_bad_step(tmp_path):
    class Late(nn.Module):
        """Outputs NaN from its 31st batch on."""

        def __init__(self):
            super().__init__()
            self.body, self.calls = small_network(), 0

        def forward(self, images):
            self.calls += self.training
            return self.body(images) * (float("nan") if self.calls > STEPS_BETWEEN_CHECKS + 5 else 1.0)

    with pytest.raises(NumericsError, match=f"epoch 1, step {STEPS_BETWEEN_CHECKS + 6} of 45"):
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
    with pytest.raises(DataError, match=r"\b2\b.*\b1\b"):
        train(tmp_path, split=separable_split(1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SettingsError, match='compute = "cuda"'):
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


def test_channels_last_and_back(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))
    model, history = train(tmp_path, model=model, epochs=8, ema=0.0, learning_rate=0.2)
    assert history.validation_accuracy == 1.0
    assert model[0].weight.is_contiguous()


@pytest.mark.parametrize("steps", [1, STEPS, STEPS + 2])
def test_a_training_ends_after_so_many_steps(tmp_path, steps):
    recorder = Recorder()
    _, history = train(tmp_path, progress=recorder, steps=steps, ema=0.0)
    assert recorder.steps == steps
    assert recorder.bars["test"] == (steps, 0)
    assert len(history.epochs) == -(-steps // STEPS)
    assert history.validation_accuracy == history.epochs[-1].validation_accuracy


def test_the_learning_rate_falls_within_the_limit_of_steps(tmp_path):
    _, history = train(tmp_path, steps=STEPS + 3, warmup_epochs=0)
    # Of 8 steps, the fifth: (1 + cos(4/8 * 180 degrees)) / 2 = 0.5; and the last: (1 + cos(7/8 * 180 degrees)) / 2.
    assert [epoch.learning_rate for epoch in history.epochs] == pytest.approx([0.05 * 0.5, 0.05 * 0.0380602])


def test_a_limit_beyond_the_epochs_changes_nothing(tmp_path):
    unlimited, _ = train(tmp_path / "a")
    limited, history = train(tmp_path / "b", steps=100)
    assert len(history.epochs) == 4
    assert_same_bits(unlimited, limited)


def test_a_training_cut_short_is_resumed_to_the_bit(tmp_path):
    unbroken, _ = train(tmp_path / "a", steps=STEPS + 2)
    with pytest.raises(InterruptedTrainingError):
        train(tmp_path / "b", progress=Recorder(at_step=STEPS + 1), steps=STEPS + 2)
    again = Recorder()
    resumed, _ = train(tmp_path / "b", progress=again, steps=STEPS + 2)
    assert again.notes == ["resuming after epoch 1 of 2"]
    assert again.bars["test"] == (STEPS + 2, STEPS)
    assert_same_bits(unbroken, resumed)


@pytest.mark.parametrize(
    "changes", [{}, {"recipe": "gentle", "learning_rate": None, "ema": None}, {"patience": 2}], ids=str
)
def test_without_epochs_the_network_stays_as_it_is(tmp_path, changes):
    model, recorder = small_network(), Recorder()
    _, history = train(tmp_path, model=model, progress=recorder, epochs=0, **changes)
    assert_same_bits(model, small_network())
    assert not model.training
    assert (history.epochs, history.seconds, history.probe) == ((), 0, None)
    assert history.validation_accuracy == history.baseline_validation_accuracy
    assert history.validation_accuracy is not None
    assert not (tmp_path / "state.safetensors").exists()
    assert "reading training images" not in recorder.bars


@pytest.mark.parametrize("interrupt_after", [3, STEPS, STEPS + 3])
def test_an_epoch_is_resumed_at_its_step_to_the_bit(tmp_path, variant, interrupt_after):
    unbroken, history = train(tmp_path / "a", **variant)
    often = {"checkpoint_minutes": 1e-9, **variant}
    with pytest.raises(InterruptedTrainingError):
        train(tmp_path / "b", progress=Recorder(at_step=interrupt_after), **often)
    saved = read_state(tmp_path / "b" / "state.safetensors")
    # The state at the end of an epoch is saved after validation, which has not run yet.
    within = interrupt_after % STEPS or STEPS - 1
    assert len(saved.partial.losses) == within
    torch.rand(3)
    again = Recorder()
    resumed, resumed_history = train(tmp_path / "b", progress=again, **often)
    whole = (interrupt_after - 1) // STEPS
    assert again.notes == [f"resuming after epoch {whole} of 4, step {within} of the next 5"]
    assert again.bars["test"] == (4 * STEPS, whole * STEPS + within)
    assert again.steps == 4 * STEPS - whole * STEPS - within
    assert_same_bits(unbroken, resumed)
    assert without_seconds(history) == without_seconds(resumed_history)


def test_nothing_is_saved_within_an_epoch_before_the_minutes_have_passed(tmp_path):
    with pytest.raises(InterruptedTrainingError):
        train(tmp_path, progress=Recorder(at_step=STEPS + 3))
    assert read_state(tmp_path / "state.safetensors").partial is None


def test_a_partial_epoch_of_other_batches_is_restarted(tmp_path):
    """As if saved by a different number of processes, whose parts add up to smaller batches."""
    with pytest.raises(InterruptedTrainingError):
        train(tmp_path, progress=Recorder(at_step=3), checkpoint_minutes=1e-9)
    path = tmp_path / "state.safetensors"
    saved = read_state(path)
    write_state(path, replace(saved, partial=replace(saved.partial, size=15)))
    again = Recorder()
    train(tmp_path, progress=again)
    assert "starting over" in again.notes[0]
    assert again.steps == 4 * STEPS


def test_weights_that_are_not_finite_are_not_saved_within_an_epoch(tmp_path):
    model = small_network()

    def explode():
        with torch.no_grad():
            model[0].weight.fill_(float("inf"))

    with pytest.raises(NumericsError, match=r"\bepoch 1, step 3\b"):
        train(tmp_path, model=model, progress=Recorder(at_step=2, act=explode), checkpoint_minutes=1e-9, ema=0.0)
    saved = read_state(tmp_path / "state.safetensors")
    assert len(saved.partial.losses) == 2
    assert all(torch.isfinite(tensor).all() for tensor in saved.model.values())
