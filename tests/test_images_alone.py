"""A whole run on images without labels: pruned, distilled, quantised, verified, measured and reported."""

import json

import pytest
import torch

from catro_deploy.files import write_text
from catro_deploy.settings import labels
from catro_deploy.stages import prune as prune_stage
from tests.report.pages import Page
from tests.tiny import command, went_well

DISTILLING = "[finetune]\ndistill = 1.0\n"


@pytest.fixture
def unlabelled(tiny):
    """The working folder, whose images now come without labels."""
    text = (tiny / "catro.toml").read_text().replace('name = "imagefolder"', 'name = "images"')
    write_text(tiny / "catro.toml", text.replace("[finetune]\n", DISTILLING))
    return tiny


@pytest.fixture
def any_criterion(monkeypatch):
    """The channels of this network are told apart by classes that stand for nothing."""

    def batches(split, count, batch_size, seed):
        images = split.images(range(min(count, len(split.labels))))
        return [(part, place % 3) for place, part in enumerate(torch.tensor_split(images, 3))]

    monkeypatch.setattr(labels, "LABEL_FREE", frozenset({"catro"}))
    monkeypatch.setattr(prune_stage, "unlabelled_batches", batches)


@pytest.mark.slow
def test_images_alone_lead_from_the_command_to_a_report_without_an_accuracy(unlabelled, any_criterion):
    done = command("run", "--run", "run", "--precision", "auto")
    assert went_well(done.exit_code, done.stderr), done.stderr
    assert "quantize: goes by agreement with the original, since the images have no labels" in done.stderr
    run = unlabelled / "run"
    verified, quantized, tuned, plan = (
        json.loads((run / f"{name}.json").read_text()) for name in ("verify", "quantize", "finetune", "plan")
    )
    assert plan["classes"] == ["0", "1", "2"]
    # Of the 60 images a tenth is held out for choices; those of data/test are used whole.
    assert (tuned["images"], tuned["validation_accuracy"]) == (54, None)
    assert (verified["labelled"], verified["test_images"], verified["accuracy_drop_points"]) == (False, 24, None)
    assert 0 <= verified["agreement_with_original"]["share"] <= 1
    assert quantized["judged_by"] == "agreement"
    assert all(one["score"] == one["agreement"] for one in quantized["candidates"].values())
    report = json.loads((run / "report.json").read_text())
    assert report["original"]["accuracy"] is report["pruned"]["accuracy"] is None
    page = " ".join(Page((run / "report.html").read_text()).texts)
    assert "Agreement with the original by class" in page
    assert "Accuracy by class" not in page


def test_what_needs_labels_is_refused_before_a_run_begins(unlabelled):
    done = command("run", "--run", "run")
    assert done.exit_code == 2
    assert "the criterion catro needs them" in done.stderr
    assert 'criterion = "obs"' in done.stderr
    assert not (unlabelled / "run" / "run.toml").exists()


def test_so_is_a_fine_tuning_that_learns_from_labels(unlabelled, any_criterion):
    write_text(unlabelled / "catro.toml", (unlabelled / "catro.toml").read_text().replace("distill = 1.0", ""))
    done = command("run", "--run", "run")
    assert done.exit_code == 2
    assert "--epochs 0" in done.stderr
    assert not (unlabelled / "run" / "run.toml").exists()
