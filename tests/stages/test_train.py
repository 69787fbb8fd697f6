import json

import pytest
import torch
from safetensors import safe_open

from catro_deploy.errors import CheckpointError, DataError, SettingsError
from catro_deploy.files import file_hash
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import RECORD_KEY, load_checkpoint, save_weights, training_record
from catro_deploy.progress import Silent
from catro_deploy.records import Trained
from catro_deploy.records.files import content_of, read_record
from catro_deploy.settings import Settings
from catro_deploy.stages.train import train
from tests.report.made import make_trained
from tests.training.conftest import one_thread  # noqa: F401 - these networks are small too
from tests.training.helpers import MEAN, STD, InterruptedTrainingError, Recorder, small_network

NETWORK = "tests.training.helpers:small_network"


def settings_for(checkpoint, **changes):
    return Settings.model_validate(
        {
            "model": {"name": NETWORK, "checkpoint": checkpoint, "mean": MEAN, "std": STD},
            "data": {"name": "tests.training.helpers:colours", "size": 8},
            "train": {"epochs": 8, "batch_size": 16, "compute": "cpu"} | changes,
        }
    )


def test_a_baseline_from_nothing(tmp_path):
    checkpoint = tmp_path / "weights" / "base.safetensors"
    recorder = Recorder(f"training {NETWORK}")
    record = train(settings_for(checkpoint), recorder)
    assert recorder.notes[0] == "images 8x8"
    assert record.validation_accuracy == 1.0
    assert record.classes == ("red", "green", "blue")
    assert record.settings["epochs"] == len(record.epochs) == 8
    assert read_record(Trained, checkpoint.with_suffix(".json"), "") == training_record(checkpoint) == record
    assert {path.name for path in checkpoint.parent.iterdir()} == {"base.safetensors", "base.json"}
    load_checkpoint(build_model(NETWORK, 3), checkpoint)


def test_what_is_trained_is_not_trained_again(tmp_path):
    checkpoint = tmp_path / "base.safetensors"
    record = train(settings_for(checkpoint), Silent())
    before = checkpoint.stat().st_mtime_ns
    checkpoint.with_suffix(".json").unlink()
    recorder = Recorder(f"training {NETWORK}")
    again = train(settings_for(checkpoint), recorder)
    assert recorder.steps == 0
    assert "already trained" in recorder.notes[0]
    assert again == record
    assert checkpoint.stat().st_mtime_ns == before
    assert checkpoint.with_suffix(".json").is_file()


def test_images_without_labels_train_nothing(tmp_path):
    settings = settings_for(tmp_path / "base.safetensors")
    data = settings.data.model_copy(update={"name": "tests.stages.test_finetune:without_labels"})
    with pytest.raises(DataError, match="no labels"):
        train(settings.model_copy(update={"data": data}), Silent())
    assert not list(tmp_path.iterdir())


def test_weights_of_others_are_never_overwritten(tmp_path):
    checkpoint = tmp_path / "base.safetensors"
    save_weights(small_network(), checkpoint)
    before = file_hash(checkpoint)
    with pytest.raises(SettingsError, match=r"base\.safetensors.* not made"):
        train(settings_for(checkpoint), Silent())
    assert file_hash(checkpoint) == before
    checkpoint.write_bytes(b"something else")
    with pytest.raises(SettingsError, match=r"base\.safetensors.* not made"):
        train(settings_for(checkpoint), Silent())
    assert checkpoint.read_bytes() == b"something else"


def test_other_settings_do_not_overwrite_either(tmp_path):
    checkpoint = tmp_path / "base.safetensors"
    train(settings_for(checkpoint, epochs=1), Silent())
    with pytest.raises(SettingsError, match=r"base\.safetensors.* other settings") as caught:
        train(settings_for(checkpoint, epochs=2), Silent())
    assert "new name" in caught.value.hint


def test_only_safetensors_are_written(tmp_path):
    with pytest.raises(SettingsError, match=r"base\.pth") as caught:
        train(settings_for(tmp_path / "base.pth"), Silent())
    assert caught.value.hint == "Set it to base.safetensors."


def test_a_killed_training_resumes_and_ends_the_same(tmp_path):
    whole, broken = tmp_path / "a" / "base.safetensors", tmp_path / "b" / "base.safetensors"
    train(settings_for(whole), Silent())
    with pytest.raises(InterruptedTrainingError):
        train(settings_for(broken), Recorder(f"training {NETWORK}", at_step=12))  # 5 steps an epoch
    assert [path.name for path in broken.parent.iterdir()] == ["base.resume.safetensors"]
    recorder = Recorder(f"training {NETWORK}")
    train(settings_for(broken), recorder)
    assert recorder.notes == ["images 8x8", "resuming after epoch 2 of 8"]
    with safe_open(whole, framework="pt") as one, safe_open(broken, framework="pt") as other:
        assert all(torch.equal(one.get_tensor(name), other.get_tensor(name)) for name in one.keys())  # noqa: SIM118


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("format", 7, "format is 7; this version reads 1 only"),
        ("classes", 3, "classes: Input should be a valid array"),
        ("validation_accuracy", 1.5, "validation_accuracy: Input should be less than or equal to 1"),
        ("extra", 1, "extra: there is no such key"),
    ],
)
def test_a_damaged_record_of_a_checkpoint_is_refused_by_file_and_key(tmp_path, key, value, says):
    checkpoint = tmp_path / "base.safetensors"
    record = content_of(make_trained()) | {key: value}
    save_weights(small_network(), checkpoint, {RECORD_KEY: json.dumps(record)})
    with pytest.raises(CheckpointError) as caught:
        train(settings_for(checkpoint), Silent())
    assert caught.value.problem.startswith(f"{checkpoint}, metadata {RECORD_KEY}: {says}")
