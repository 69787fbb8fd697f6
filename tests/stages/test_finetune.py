import dataclasses
import json
import math

import numpy as np
import pytest
from safetensors import safe_open

from catro_deploy import networks
from catro_deploy.data import MemorySplit, open_dataset
from catro_deploy.data.base import Subset
from catro_deploy.errors import CheckpointError, RunFolderError, SettingsError
from catro_deploy.files import file_hash
from catro_deploy.progress import Silent
from catro_deploy.records import Finetune
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan, save_plan
from catro_deploy.runs.records import load
from catro_deploy.settings import Settings
from catro_deploy.stages import finetune as finetune_module
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.held_out import held_out_of
from catro_deploy.stages.prune import prune
from catro_deploy.stages.train import train
from catro_deploy.training import accuracy, predict
from tests.tiny import RECONSTRUCTION
from tests.training.conftest import one_thread  # noqa: F401 - these networks are small too
from tests.training.helpers import MEAN, STD, InterruptedTrainingError, Recorder, assert_same_bits, colours


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A baseline of three colours, to be pruned for two of them."""
    folder = tmp_path_factory.mktemp("baseline")
    settings = Settings.model_validate(
        {
            "model": {
                "name": "tests.training.helpers:small_network",
                "checkpoint": folder / "baseline.safetensors",
                "mean": MEAN,
                "std": STD,
            },
            "data": {"name": "tests.training.helpers:colours", "size": 8},
            "train": {"epochs": 3, "batch_size": 16, "compute": "cpu"},
            "prune": {
                "classes": ["red", "blue"],
                "budget": "60%flops",
                "reconstruct": False,
                "samples_per_class": 16,
                "compute": "cpu",
            },
            "finetune": {"epochs": 8, "batch_size": 16, "compute": "cpu", "ema": 0.5, "distill": 0.5},
        }
    )
    train(settings, Silent())
    return settings


@pytest.fixture
def run(settings, tmp_path):
    run = RunFolder(tmp_path / "run")
    prune(settings, run, Silent())
    return run


def test_the_originals_accuracy_on_the_same_validation_images_is_recorded(settings, run):
    finetune(settings, run, Silent())
    plan, original = load_plan(run), networks.load(run, weights="original")
    images = Subset(open_dataset(settings.data, (8, 8), 3).validation, plan.class_indices)
    expected = accuracy(predict(original, images, MEAN, STD, 7), images.labels)
    assert json.loads(run.finetune.read_text())["original_validation_accuracy"] == expected


def test_images_that_a_search_holds_are_not_opened_again(settings, run, monkeypatch):
    expected = finetune(settings, run, Silent())
    trained = networks.load(run)
    held_out = held_out_of(settings, Silent())
    monkeypatch.setattr(finetune_module, "open_images_of", None)
    again = finetune(settings, run, Silent(), held_out)
    assert_same_bits(networks.load(run), trained)
    assert again.choice == expected.choice
    assert again.original_validation_accuracy == expected.original_validation_accuracy


def test_the_pruned_network_learns_its_classes(settings, run):
    history = finetune(settings, run, Silent())
    assert history.validation_accuracy == 1.0
    assert history.images == 60
    assert history == load(Finetune, run)
    assert (history.choice.kept, history.choice.images, history.validation_images) == ("finetuned", 14, 14)
    assert history.choice.after.accuracy == history.validation_accuracy
    assert history.original_validation_accuracy == 1.0
    with safe_open(run.weights, framework="pt") as file:
        assert json.loads(file.metadata()["catro_deploy.network"])["plan"] == file_hash(run.plan)
    assert not run.finetune_state.exists()

    dataset = open_dataset(settings.data, (8, 8), 3)
    test = Subset(dataset.test, (0, 2))
    logits = predict(networks.load(run), test, MEAN, STD, batch_size=16)
    assert logits.shape == (14, 2)
    assert accuracy(logits, test.labels) == 1.0


def test_a_killed_fine_tuning_resumes_and_ends_the_same(settings, run):
    finetune(settings, run, Silent())
    expected = file_hash(run.weights)
    run.weights.unlink()
    run.finetune.unlink()
    with pytest.raises(InterruptedTrainingError):
        finetune(settings, run, Recorder("fine-tuning", at_step=8))  # 3 steps an epoch
    assert run.finetune_state.is_file()
    assert not run.weights.exists()
    recorder = Recorder("fine-tuning")
    finetune(settings, run, recorder)
    assert recorder.notes == ["resuming after epoch 2 of 8"]
    assert file_hash(run.weights) == expected


def changed(settings, **finetune):
    return settings.model_copy(update={"finetune": settings.finetune.model_copy(update=finetune)})


def test_of_no_epochs_the_weights_are_those_of_the_pruning(settings, run):
    history = finetune(changed(settings, epochs=0), run, Silent())
    record = json.loads(run.finetune.read_text())
    assert record["epochs"] == []
    assert record["validation_accuracy"] == record["baseline_validation_accuracy"] == history.validation_accuracy
    with safe_open(run.weights, framework="pt") as file:
        assert json.loads(file.metadata()["catro_deploy.network"])["plan"] == file_hash(run.plan)
    assert_same_bits(networks.load(run), networks.load(run, weights="pruned"))
    assert not run.finetune_state.exists()


@pytest.mark.parametrize("reconstructed", [False, True])
def test_auto_follows_the_plan(settings, run, reconstructed):
    """20 steps: too few for a probe."""
    save_plan(dataclasses.replace(load_plan(run), reconstruction=RECONSTRUCTION if reconstructed else None), run.plan)
    auto = changed(settings, epochs=20, steps=20, ema=None, distill=None, augment="none")
    history = finetune(auto, run, Silent())
    # The last of 20 steps on a cosine; without a reconstruction, the first 3 are warm-up.
    share = (1 + math.cos(math.pi * (19 / 20 if reconstructed else 16 / 17))) / 2
    assert history.epochs[-1].learning_rate == pytest.approx(
        # Scaled to batches of 16; for batches of 128 the rates are 0.004 (for 100 steps) and 0.05.
        share * (0.004 * 0.2**0.25 if reconstructed else 0.05) * 16 / 128
    )
    assert load_plan(run).reconstructed == reconstructed


@pytest.mark.parametrize(("distill", "weight"), [(0.0, 2.0), (0.5, 2.0), (0.5, 0.0), (0.0, 0.0)])
def test_the_original_teaches_what_the_settings_say(settings, run, monkeypatch, distill, weight):
    jobs, real = [], finetune_module.fit

    def fit(job, *arguments):
        jobs.append(job)
        return real(job, *arguments)

    monkeypatch.setattr(finetune_module, "fit", fit)
    finetune(changed(settings, epochs=1, distill=distill, distill_features=weight), run, Silent())
    (job,) = jobs
    assert (job.teacher is not None) == bool(distill or weight)
    assert bool(job.features) == bool(weight)
    if weight:
        kept = {name: layer.kept for name, layer in job.features.layers.items() if layer.kept is not None}
        assert kept
        for name, channels in kept.items():
            assert tuple(channels.tolist()) == load_plan(run).keeps[name].inputs


RUINOUS = {"learning_rate": 0.5, "epochs": 2, "distill": 0.0, "ema": 0.0, "warmup_epochs": 0.0, "label_smoothing": 0.9}


def test_a_training_that_harms_is_discarded_whether_interrupted_or_not(settings, run):
    ruinous, recorder = changed(settings, **RUINOUS), Recorder("fine-tuning")
    history = finetune(ruinous, run, recorder)
    assert "Fine-tuning did not improve the network on 14 validation images" in recorder.notes[-1]
    assert "learning_rate" in recorder.notes[-1]
    record, weights = json.loads(run.finetune.read_text()), file_hash(run.weights)
    assert record["choice"]["kept"] == "pruned"
    assert len(record["epochs"]) == 2
    assert record["validation_accuracy"] == record["baseline_validation_accuracy"] == history.validation_accuracy
    assert_same_bits(networks.load(run), networks.load(run, weights="pruned"))
    with pytest.raises(InterruptedTrainingError):
        finetune(ruinous, run, Recorder("fine-tuning", at_step=4))
    assert run.finetune_state.is_file()
    finetune(ruinous, run, Silent())
    assert file_hash(run.weights) == weights
    again = json.loads(run.finetune.read_text())
    assert again["choice"] == record["choice"]


def test_few_images_are_trained_in_small_batches_of_announced_steps(settings, run):
    recorder = Recorder("fine-tuning")
    finetune(changed(settings, batch_size=None, epochs=2), run, recorder)
    assert recorder.notes[:2] == [
        "6 training steps: 2 epochs of 3, batches of 16 images",
        "fewer than 100 training steps change a network little: set more epochs",
    ]


def test_a_damaged_state_stops_it_and_harms_nothing(settings, run):
    run.finetune_state.write_bytes(b"half a file")
    with pytest.raises(CheckpointError, match=str(run.finetune_state)) as caught:
        finetune(settings, run, Silent())
    assert "Delete it" in caught.value.hint
    assert run.finetune_state.read_bytes() == b"half a file"
    assert not run.weights.exists()


def test_without_a_plan_it_says_which_stage_makes_one(settings, tmp_path):
    with pytest.raises(RunFolderError, match=r"plan\.json") as caught:
        finetune(settings, RunFolder(tmp_path), Silent())
    assert "catro-deploy prune" in caught.value.hint


def without_labels(settings, size, channels):
    known = colours(settings, size, channels)
    splits = [MemorySplit(s.pixels, np.full(len(s.labels), -1)) for s in (known.train, known.validation, known.test)]
    return dataclasses.replace(known, train=splits[0], validation=splits[1], test=splits[2])


def test_images_without_labels_teach_by_the_originals_outputs_alone(settings, run):
    data = settings.data.model_copy(update={"name": "tests.stages.test_finetune:without_labels"})
    mixed = settings.model_copy(update={"data": data})
    with pytest.raises(SettingsError, match=r"distill = 0\.5\b[\s\S]*--epochs 0"):
        finetune(mixed, run, Silent())
    assert not run.weights.exists()
    alone = mixed.model_copy(update={"finetune": mixed.finetune.model_copy(update={"distill": 1.0})})
    history = finetune(alone, run, Silent())
    assert (history.validation_accuracy, history.baseline_validation_accuracy) == (None, None)
    known = Subset(open_dataset(settings.data, (8, 8), 3).test, load_plan(run).class_indices)
    assert accuracy(predict(networks.load(run), known, MEAN, STD, 16), known.labels) == 1.0
