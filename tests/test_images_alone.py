"""Whole runs on images without labels: pruned, distilled, quantised, verified, measured and reported."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from catro_deploy.data import MemorySplit
from catro_deploy.files import write_text
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.progress import Silent
from catro_deploy.pruning import classifier, finding
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import load_settings
from catro_deploy.stages import qat as qat_stage
from tests.report.pages import Page
from tests.tiny import Blocks, command, exit_code_of


@pytest.fixture
def unlabelled(tiny, monkeypatch):
    """The working folder, with images without labels; [prune] and [finetune] do not choose a method.

    Code that compares classes fails.
    """
    text = (tiny / "catro.toml").read_text().replace('name = "imagefolder"', 'name = "images"')
    write_text(tiny / "catro.toml", text.replace('recipe = "none"\n', ""))
    monkeypatch.setattr("catro_deploy.stages.prune.labelled_batches", None)
    monkeypatch.setattr(classifier, "score_channels", None)
    monkeypatch.setattr(classifier, "choose_channels", None)
    return tiny


def content(folder, name):
    return json.loads((folder / "run" / f"{name}.json").read_text())


@pytest.mark.slow
def test_images_alone_lead_from_the_command_to_a_report_without_an_accuracy(unlabelled):
    done = command("run", "--run", "run", "--precision", "auto")
    assert done.exit_code == exit_code_of(Path("run")), done.stderr
    measures = "agreement with the original and divergence from its outputs"  # of 6 images
    assert f"quantize: decides by {measures}, since the images have no labels" in done.stderr
    verified, quantized, tuned, plan = (
        content(unlabelled, name) for name in ("verify", "quantize", "finetune", "plan")
    )
    assert plan["classes"] == ["0", "1", "2"]
    assert (plan["criterion"], plan["allocation"]) == ("catro", "exact")
    assert plan["reconstruction"]["kl_reconstructed"] <= plan["reconstruction"]["kl_cut"]
    # A tenth of the 60 images is held out for choices; all images of data/test are used.
    assert (tuned["images"], tuned["validation_accuracy"]) == (54, None)
    assert len(tuned["epochs"]) == 2
    assert (verified["labelled"], verified["test_images"], verified["accuracy_drop_points"]) == (False, 24, None)
    assert 0 <= verified["agreement_with_original"]["share"] <= 1
    assert quantized["metric"] == "agreement"
    assert all(one["score"] == one["agreement"] for one in quantized["candidates"].values())
    report = content(unlabelled, "report")
    assert report["original"]["accuracy"] is report["pruned"]["accuracy"] is None
    page = " ".join(Page((unlabelled / "run" / "report.html").read_text()).texts)
    assert "Agreement with the original by class" in page
    assert "Accuracy by class" not in page


def test_some_classes_and_no_epochs(unlabelled):
    done = command("run", "--run", "run", "--classes", "0,2", "--epochs", "0", "--criterion", "obs")
    assert done.exit_code == exit_code_of(Path("run")), done.stderr
    plan = content(unlabelled, "plan")
    assert (plan["classes"], plan["class_indices"], plan["criterion"]) == (["0", "2"], [0, 2], "obs")
    assert plan["pruned_macs"] <= 0.5 * plan["original_macs"]
    assert content(unlabelled, "finetune")["epochs"] == []
    assert content(unlabelled, "verify")["agreement_with_original"]["share"] >= 0.5


@pytest.mark.slow
def test_a_budget_of_measured_latency(unlabelled, monkeypatch):
    save_weights(Blocks(3), unlabelled / "blocks.safetensors")
    monkeypatch.setattr(finding, "CANDIDATES", "./moment.toml")
    model = ("--model", "tests.tiny:blocks", "--checkpoint", "blocks.safetensors")
    done = command("run", "--run", "run", *model, "--budget", "0.7x")
    assert done.exit_code == exit_code_of(Path("run")), done.stderr
    report = content(unlabelled, "report")
    assert (report["budget"], report["latency_plan"]["how"]) == ("0.7x", "measured")
    assert load_plan(RunFolder(unlabelled / "run")).reconstructed


@pytest.mark.parametrize("recipe", ["none", "gentle", "paper"])
def test_every_recipe_learns_from_the_original(unlabelled, recipe):
    done = command("prune", "--run", "run")
    assert done.exit_code == 0, done.stderr
    done = command("finetune", "--run", "run", "--finetune-recipe", recipe, "--epochs", "1")
    assert done.exit_code == 0, done.stderr
    assert "distill" not in (unlabelled / "run" / "run.toml").read_text()
    assert len(content(unlabelled, "finetune")["epochs"]) == 1


@pytest.mark.parametrize("labelled", [True, False])
def test_integers_are_learned_from_the_fine_tuned_network(unlabelled, monkeypatch, labelled):
    seen = []
    monkeypatch.setattr(qat_stage, "aware", lambda *given: SimpleNamespace(network=None, trained=lambda source: source))
    monkeypatch.setattr(qat_stage, "fit", lambda job, *given: seen.append((job.teacher, job.distill)))
    assert command("prune", "--run", "run").exit_code == 0
    assert command("finetune", "--run", "run", "--epochs", "0").exit_code == 0
    settings, run = load_settings(unlabelled / "catro.toml", {"finetune": {"recipe": "none"}}), RunFolder(Path("run"))
    split = MemorySplit(torch.zeros(4, 3, 16, 16, dtype=torch.uint8), np.full(4, 0 if labelled else -1))
    qat_stage.qat("source", None, (split, split), settings, run, load_plan(run), Silent())
    ((teacher, distill),) = seen
    assert (teacher is None, distill) == ((True, 0.0) if labelled else (False, 1.0))


@pytest.mark.parametrize(
    ("section", "setting", "said"),
    [
        ("prune", "reconstruct = false", ("reconstruct = false needs them", "Leave reconstruct")),
        ("prune", 'worth = "scatter"', ('worth = "scatter" needs them', 'worth = "measured"')),
        ("finetune", "distill = 0.5", ("distill = 0.5 needs them", "--epochs 0")),
        ("quantize", "qat_epochs = 3\n[finetune]\nepochs = 0\ndistill = 0.5", ("distill = 0.5 needs them",)),
    ],
)
def test_what_needs_labels_is_refused_before_a_run_begins(unlabelled, section, setting, said):
    text = (unlabelled / "catro.toml").read_text()
    if section == "quantize":
        text = text.replace("[finetune]\nepochs = 2", f"[quantize]\n{setting}")
    else:
        text = text.replace(f"[{section}]\n", f"[{section}]\n{setting}\n")
    write_text(unlabelled / "catro.toml", text)
    done = command("run", "--run", "run", "--precision", "int8")
    assert done.exit_code == 2
    assert all(words in done.stderr for words in said)
    assert not (unlabelled / "run" / "run.toml").exists()


def test_whatever_learns_from_labels_is_not_refused_without_epochs(unlabelled):
    write_text(
        unlabelled / "catro.toml",
        (unlabelled / "catro.toml").read_text().replace("[finetune]\n", "[finetune]\ndistill = 0.5\n"),
    )
    done = command("run", "--run", "run", "--epochs", "0")
    assert done.exit_code == exit_code_of(Path("run")), done.stderr
