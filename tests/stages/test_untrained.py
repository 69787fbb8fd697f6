"""A run whose fine-tuning has no epochs: every later stage uses the network as it was pruned."""

import json

import pytest

import catro_deploy
from catro_deploy import networks
from catro_deploy.files import file_hash
from tests.tiny import command, exit_code_of
from tests.training.helpers import assert_same_bits

LATER = ("export", "verify", "bench", "report")


@pytest.fixture
def untrained(tiny_run):
    """A run whose stages from finetune on were run again with 0 epochs."""
    done = command("finetune", "--run", "run", "--epochs", "0")
    assert done.exit_code == 0, done.stderr
    assert "No training: validation accuracy" in done.stdout
    for stage in LATER:
        done = command(stage, "--run", "run")
        assert done.exit_code == exit_code_of(tiny_run.path, stage), done.stderr
    return tiny_run


def test_every_stage_works_without_training(untrained):
    pruned = networks.load(untrained, weights="pruned")
    assert_same_bits(networks.load(untrained), pruned)
    assert_same_bits(catro_deploy.load(untrained.path), pruned)
    record = json.loads(untrained.finetune.read_text())
    assert record["epochs"] == []
    assert record["validation_accuracy"] == record["baseline_validation_accuracy"]
    for suffix in ("md", "html"):
        assert untrained.report(suffix).read_text(encoding="utf-8").count("No training took place") == 1
    report = json.loads(untrained.report("json").read_text())
    assert report["verification"]["pruned"]["agreement"] == 1.0
    assert report["pruned"]["accuracy"] == report["verification"]["pruned"]["torch"]


def test_a_run_that_was_not_trained_is_trained_by_the_same_command(untrained):
    before = file_hash(untrained.weights)
    assert "unchanged, skipped" in command("finetune", "--run", "run").stderr
    done = command("finetune", "--run", "run", "--epochs", "1")
    assert done.exit_code == 0, done.stderr
    record = json.loads(untrained.finetune.read_text())
    assert len(record["epochs"]) == 1
    assert (file_hash(untrained.weights) != before) == (record["choice"]["kept"] == "finetuned")


def test_training_a_baseline_takes_an_epoch(tiny):
    done = command("train", "--epochs", "0")
    assert done.exit_code == 2
    assert "train.epochs = 0 does not fit" in done.stderr


def test_forced_to_train_again_the_better_network_is_still_kept(tiny_run):
    """At this learning rate, training destroys the pruned network."""
    ruin = ("finetune", "--run", "run", "--epochs", "1", "--learning-rate", "50")
    first = command(*ruin)
    assert first.exit_code == 0, first.stderr
    pruned, before = networks.load(tiny_run, weights="pruned"), file_hash(tiny_run.weights)
    assert "unchanged, skipped" in command(*ruin).stderr
    tiny_run.weights.unlink()
    forced = command(*ruin, "--force")
    assert forced.exit_code == 0, forced.stderr
    assert "because of --force" in forced.stderr
    assert "1 epoch of" in forced.stderr  # it did train again
    assert "the weights from before it are kept" in forced.stdout
    assert json.loads(tiny_run.finetune.read_text())["choice"]["kept"] == "pruned"
    assert file_hash(tiny_run.weights) == before
    assert_same_bits(networks.load(tiny_run), pruned)
