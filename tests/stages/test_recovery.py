"""The networks between the steps, run on the same test images; every prediction is known by hand."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from catro_deploy.models.checkpoint import save_weights
from catro_deploy.progress import Silent
from catro_deploy.records import ReconstructionPlan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan, save_plan
from catro_deploy.stages import recovery
from catro_deploy.stages.export import export
from catro_deploy.stages.verify import verify
from tests.stages import colours
from tests.stages.test_verify import Counter

BLIND = pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> RunFolder:
    """A run whose original is right about every image, and whose final network never predicts blue."""
    run = colours.make_run(tmp_path_factory.mktemp("run"), pruned=colours.blind_to(2))
    export(colours.settings(), run, Silent())
    return run


@pytest.fixture
def run(exported, tmp_path) -> RunFolder:
    """A copy of ``exported`` that the test may change."""
    return RunFolder(Path(shutil.copytree(exported.path, tmp_path / "run")))


def reconstructed(run):
    """Add a reconstruction. Nothing was cut, so right after the cut the network is the original."""
    save_plan(replace(load_plan(run), reconstruction=ReconstructionPlan(1.0, 0.5, {"fc": 0.9}, {})), run.plan)
    export(colours.settings(), run, Silent())


def recovery_of(run, steps=4 * 30, **sections):
    progress = Counter()
    verify(colours.settings(**sections), run, progress)
    assert progress.steps == progress.total == steps
    return json.loads(run.verify.read_text())["recovery"]


def test_every_step_is_measured_on_the_same_images(run):
    two_blind = colours.blind_to(2)
    two_blind.fc.bias.data[1] = -1000
    save_weights(two_blind, run.pruned_weights)
    reconstructed(run)
    assert recovery_of(run, 6 * 30, verify={"batch_size": 7}) == {
        "metric": "accuracy",
        "images": 30,
        "original": 1,
        "cut": 1,
        "reconstructed": pytest.approx(1 / 3),
        "finetuned": BLIND,
    }


def test_without_training_the_reconstructed_network_is_the_last(run):
    shutil.copy(run.weights, run.pruned_weights)
    reconstructed(run)
    found = recovery_of(run, 5 * 30)
    assert (found["cut"], found["reconstructed"], found["finetuned"]) == (1, BLIND, None)


@pytest.mark.parametrize("trained", [False, True])
def test_without_reconstruction_there_is_no_such_step(run, trained):
    save_weights(colours.ColourNet(3) if trained else colours.blind_to(2), run.pruned_weights)
    found = recovery_of(run, (5 if trained else 4) * 30)
    assert (found["cut"], found["reconstructed"], found["finetuned"]) == (
        (1, None, BLIND) if trained else (BLIND, None, None)
    )


def test_large_networks_are_shown_some_of_the_images_evenly_spaced(run, monkeypatch):
    monkeypatch.setattr(recovery, "FEWEST_IMAGES", 4)
    monkeypatch.setattr(recovery, "MACS", 4)
    save_weights(colours.ColourNet(3), run.pruned_weights)
    found = recovery_of(run, 4 * 30 + 4)  # images 0, 10, 19 and 29: red, green, green, blue
    assert (found["images"], found["original"], found["cut"], found["finetuned"]) == (4, 1, 1, 3 / 4)


def test_without_labels_agreement_with_the_original_is_measured(run):
    save_weights(colours.ColourNet(3), run.pruned_weights)
    found = recovery_of(run, 5 * 31, data={"name": "tests.stages.test_verify:unlabelled"})
    assert (found["metric"], found["original"], found["cut"]) == ("agreement", 1, 1)
    assert found["finetuned"] == pytest.approx(21 / 31)


def test_a_run_that_kept_no_pruned_weights_has_none(run):
    assert recovery_of(run) is None
