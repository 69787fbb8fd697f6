"""Two processes under torchrun compared with one: the same training, and what remains when one of them dies."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from catro_deploy.data.base import MemorySplit
from catro_deploy.errors import SettingsError
from catro_deploy.records import Finetune
from catro_deploy.runs.records import load
from catro_deploy.training import fit
from catro_deploy.training.augment import Share
from catro_deploy.training.batches import SplitBatches
from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.features import Features, Maps
from catro_deploy.training.state import read_state
from catro_deploy.training.world import World
from tests.training.helpers import MEAN, STD, Recorder, options, separable_split, small_network
from tests.training.together_script import WAYS, job_of, network

CHECKOUT = Path(__file__).parents[2]
LIMIT_S = 240
HALVES = (slice(8), slice(8, None))


def torchrun(*command, cwd=CHECKOUT):
    """Run ``command`` in two processes."""
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(
        [*start, *map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )


def script(*arguments):
    return torchrun("-m", "tests.training.together_script", *arguments)


@pytest.fixture(scope="module")
def together_folder(tmp_path_factory):
    """The results of two processes that trained in every way."""
    folder = tmp_path_factory.mktemp("together")
    done = script(folder, *WAYS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("processes 2, [")
    assert "batches of 16 images" in done.stdout
    return folder


@pytest.fixture(scope="module")
def together(together_folder):
    """The weights that they trained without a compiler."""
    return load_file(together_folder / "plain" / "weights.safetensors")


def history_of(folder):
    return json.loads((folder / "history.json").read_text())


def test_the_parts_of_a_batch_are_those_of_the_whole():
    """Same images, same order, same augmentation, no duplicates."""
    split = MemorySplit(torch.randint(0, 256, (64, 3, 8, 8), dtype=torch.uint8), np.arange(64))
    hardware = choose_hardware(small_network(), "cpu", amp=False)
    whole, first, second = (
        SplitBatches(split, options(), MEAN, STD, hardware, World(rank, size))
        for rank, size in ((0, 1), (0, 2), (1, 2))
    )
    seen = []
    for (images, labels), *parts in zip(*(one.epoch(1) for one in (whole, first, second)), strict=True):
        assert torch.equal(images, torch.cat([part for part, _ in parts]))
        assert torch.equal(labels, torch.cat([own for _, own in parts]))
        assert [len(own) for _, own in parts] == [8, 8]
        seen += labels.tolist()
    assert sorted(seen) == list(range(64))


def test_a_share_is_cut_along_the_last_axis():
    assert Share(1, 3).cut(torch.arange(12).reshape(2, 6)).tolist() == [[2, 3], [8, 9]]


def test_a_batch_that_cannot_be_shared_is_refused():
    hardware = choose_hardware(small_network(), "cpu", amp=False)
    with pytest.raises(SettingsError, match=r"\b4 processes\b"):
        SplitBatches(separable_split(3), options(), MEAN, STD, hardware, World(0, 4))


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_two_processes_train_as_one_does(together_folder, together, tmp_path):
    """The validation accuracy covers 21 images: 11 in one process, 10 in the other."""
    job = job_of("plain")
    alone, history = job.model, fit(job, tmp_path / "alone.safetensors", Recorder())
    accuracies = [epoch["validation_accuracy"] for epoch in history_of(together_folder / "plain")["epochs"]]
    assert accuracies == [epoch.validation_accuracy for epoch in history.epochs]
    pairs = zip(network().parameters(), alone.parameters(), strict=True)
    moved = max((before - after).abs().max().item() for before, after in pairs)
    assert moved > 0.1
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(together[name], tensor, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_two_processes_train_a_compiled_network_together(together_folder, together):
    for name, tensor in load_file(together_folder / "compiled" / "weights.safetensors").items():
        torch.testing.assert_close(tensor, together[name], rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_two_processes_choose_the_learning_rate_that_one_does(together_folder, tmp_path):
    found = history_of(together_folder / "gentle")["probe"]
    job = job_of("gentle")
    alone, history = job.model, fit(job, tmp_path / "alone.safetensors", Recorder())
    assert found["chosen"] == history.probe.chosen
    assert found["losses"] == pytest.approx(list(history.probe.losses), abs=1e-5)
    for name, tensor in load_file(together_folder / "gentle" / "weights.safetensors").items():
        torch.testing.assert_close(tensor, alone.state_dict()[name], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_two_processes_learn_feature_maps_as_one_does(together_folder, tmp_path, monkeypatch):
    """Each process relates the distance of its 8 images to their own maps."""
    whole = Features.loss

    def by_halves(features: Features, pruned: Maps, original: Maps) -> torch.Tensor:
        halves = [[{k: maps[part] for k, maps in of.items()} for of in (pruned, original)] for part in HALVES]
        return torch.stack([whole(features, *half) for half in halves]).mean()

    monkeypatch.setattr(Features, "loss", by_halves)
    job = job_of("taught")
    fit(job, tmp_path / "alone.safetensors", Recorder())
    for name, tensor in load_file(together_folder / "taught" / "weights.safetensors").items():
        torch.testing.assert_close(tensor, job.model.state_dict()[name], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(4 * LIMIT_S)
def test_where_a_process_dies_all_end_and_the_training_resumes(together, tmp_path):
    """An epoch has five steps; the process dies in the third epoch."""
    folder = tmp_path / "plain"
    died = script(tmp_path, "plain", "--dies-at", 12)
    assert died.returncode != 0
    assert len(read_state(folder / "state.safetensors").epochs) == 2
    assert not (folder / "weights.safetensors").exists()
    again = script(tmp_path, "plain")
    assert again.returncode == 0, again.stderr
    assert "resuming after epoch 2 of 4" in again.stdout
    resumed = load_file(folder / "weights.safetensors")
    for name, tensor in together.items():
        torch.testing.assert_close(resumed[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_the_command_line_under_torchrun(tiny_run):
    """Only one process writes files and prints; a stage without training runs in that process alone."""
    tiny_run.weights.unlink()
    program = ("--no-python", "--", Path(sys.executable).with_name("catro-deploy"))  # torchrun would parse --run itself
    for epochs in (2, 0):
        done = torchrun(*program, "finetune", "--run", "run", "--epochs", epochs, cwd=Path.cwd())
        assert done.returncode == 0, done.stderr
        assert tiny_run.weights.is_file()
        record = load(Finetune, tiny_run)
        assert (record.processes, len(record.epochs)) == (2, epochs)
        assert done.stderr.count("finetune: done") == 1
    refused = torchrun(*program, "export", "--run", "nowhere", cwd=Path.cwd())
    assert refused.returncode != 0
    assert refused.stderr.count("is not a run folder") == 1
