import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from catro_deploy.assessment.basis import Basis
from catro_deploy.data import MemorySplit
from catro_deploy.errors import DataError, MissedError, SettingsError, TargetError
from catro_deploy.files import write_text
from catro_deploy.progress import Silent
from catro_deploy.records import Plan, Search, TriedPoint
from catro_deploy.records.report import Report
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load
from catro_deploy.settings import Settings
from catro_deploy.stages import search as search_stage
from catro_deploy.stages.held_out import HeldOut
from catro_deploy.stages.search import halve, on_front, search
from tests.report.made import slower_by
from tests.tiny import SIZE, command, dataset, exit_code_of
from tests.training.helpers import Recorder

pytestmark = pytest.mark.usefixtures("short_trials")

ORIGINAL = 0.9


def by_accuracy(original=ORIGINAL):
    return Basis("accuracy", np.zeros(10, np.int64), original)


def by_agreement():
    return Basis("agreement", np.zeros(10, np.int64), None, "the images have no labels")


def judging_by(basis):
    """A replacement for looking at the validation images that returns ``basis``."""
    return lambda settings, progress: HeldOut(None, None, None, basis)


def halved(keeps):
    """The result of ``halve``, and the shares that it tries."""
    asked = []

    def noted(share):
        asked.append(share)
        return keeps(share)

    return halve(noted), asked


def test_all_that_keep_the_accuracy_lead_down_to_a_tenth():
    found, asked = halved(lambda share: True)
    # Each is the geometric mean of 0.1 and the previous one: sqrt(0.05), sqrt(0.0224), sqrt(0.015), sqrt(0.0122).
    assert asked == [0.5, 0.224, 0.15, 0.122, 0.11]
    assert found == 0.11


def test_none_that_keeps_it_leads_up_towards_the_original():
    found, asked = halved(lambda share: False)
    # Each is the geometric mean of 1 and the previous one.
    assert asked == [0.5, 0.707, 0.841, 0.917, 0.958]
    assert found is None


def test_the_interval_is_halved_around_where_the_accuracy_breaks():
    found, asked = halved(lambda share: share >= 0.3)
    # sqrt(0.1*0.5), sqrt(0.224*0.5), sqrt(0.224*0.335), sqrt(0.274*0.335)
    assert asked == [0.5, 0.224, 0.335, 0.274, 0.303]
    assert found == 0.303


@pytest.mark.parametrize("least", [0.12, 0.2, 0.45, 0.6, 0.9])
def test_what_is_found_is_the_smallest_that_keeps_and_near_the_truth(least):
    found, asked = halved(lambda share: share >= least)
    assert found == min(share for share in asked if share >= least)
    assert len(set(asked)) == 5
    assert found / least <= (1.12 if least < 0.5 else math.sqrt(2) ** 0.25 + 0.01)


@pytest.mark.parametrize(("accuracy", "drop"), [(0.895, 0.5), (0.9, 0.0), (0.91, -1.0), (None, None)])
def test_the_drop_is_in_points(accuracy, drop):
    tried = TriedPoint(0.5, validation_accuracy=accuracy, agreement=0.5)
    assert on_front(tried, by_accuracy(), kept=True).drop_points == drop


@pytest.mark.parametrize(("agreement", "drop"), [(0.995, 0.5), (1.0, 0.0), (None, None)])
def test_by_agreement_the_drop_is_what_it_lacks(agreement, drop):
    tried = TriedPoint(0.5, validation_accuracy=0.1, agreement=agreement)
    assert on_front(tried, by_agreement(), kept=True).drop_points == drop


@pytest.fixture
def settings(folder):
    """Make settings; keywords go into [prune]."""

    def make(max_drop=0.5, epochs=4, **pruning):
        return Settings.model_validate(
            {
                "model": {"name": "tests.tiny:blocks", "checkpoint": folder / "blocks.safetensors"},
                "data": {"name": "tests.tiny:dataset", "size": SIZE},
                "prune": {"samples_per_class": 16, "compute": "cpu", "budget": "auto"} | pruning,
                "finetune": {"epochs": epochs, "batch_size": 16, "augment": "none", "compute": "cpu"},
                "verify": {"max_drop": max_drop},
                "profile": {"protocol": str(folder / "few.toml")},
            }
        )

    return make


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


@pytest.fixture
def tried(monkeypatch):
    """A rule in place of pruning: accuracy is ORIGINAL from 0.3x up and lower below, with no network below 0.23x."""
    asked = []

    def made(share, of, folder, progress, held_out):
        asked.append(share)
        if share < 0.23:
            return TriedPoint(share)
        accuracy, agreement = (ORIGINAL, 1.0) if share >= 0.3 else (ORIGINAL - 0.1, 0.8)
        return TriedPoint(share, slower_by(share - 0.01, 0.005), accuracy, share + 0.1, agreement, 0.01)

    monkeypatch.setattr(search_stage, "_prune_and_finetune", made)
    monkeypatch.setattr(search_stage, "held_out_of", judging_by(by_accuracy()))
    return asked


def test_the_front_holds_every_budget_and_names_the_one_kept(settings, run, tried):
    content = search(settings(), run, Silent())
    assert content == load(Search, run)
    assert tried == [0.5, 0.224, 0.335, 0.274, 0.303]
    assert (content.budget, content.max_drop, content.epochs) == ("0.303x", 0.5, 2)
    assert (content.metric, content.original_validation_accuracy) == ("accuracy", ORIGINAL)
    outcomes = [(one.budget, one.drop_points, one.kept) for one in content.front]
    assert outcomes == [
        ("0.224x", None, False),
        ("0.274x", 10.0, False),
        ("0.303x", 0.0, True),
        ("0.335x", 0.0, True),
        ("0.5x", 0.0, True),
    ]


def test_without_labels_the_metric_is_agreement(settings, run, tried, monkeypatch):
    monkeypatch.setattr(search_stage, "held_out_of", judging_by(by_agreement()))
    recorder = Recorder("")
    content = search(settings(), run, recorder)
    assert (content.metric, content.metric_reason) == ("agreement", "the images have no labels")
    assert content.original_validation_accuracy is None
    assert content.budget == "0.303x"
    assert [one.drop_points for one in content.front] == [None, 20.0, 0.0, 0.0, 0.0]
    assert recorder.notes[0].startswith(
        "10 validation images cannot resolve a loss of 0.5 points: one image is 10 points"
    )
    assert recorder.notes[1] == "search: decides by agreement with the original, since the images have no labels"


@pytest.mark.parametrize(("epochs", "short"), [(1, 1), (2, 2), (8, 2), (40, 10), (41, 11)])
def test_a_budget_is_tried_with_a_quarter_of_the_epochs(settings, run, tried, epochs, short):
    assert search(settings(epochs=epochs), run, Silent()).epochs == short


def test_budgets_that_were_tried_serve_for_another_loss_but_not_for_other_settings(settings, run, tried):
    search(settings(), run, Silent())
    tried.clear()
    assert search(settings(max_drop=0.2), run, Silent()).budget == "0.303x"
    assert tried == []
    assert search(settings(max_drop=20.0), run, Silent()).budget == "0.248x"
    assert tried == [0.248]  # sqrt(0.224 * 0.274), now that 0.274 is kept
    tried.clear()
    search(settings(seed=1), run, Silent())
    assert len(tried) == 5


@pytest.mark.parametrize(
    ("kl", "budget", "said"),
    [(0.004, "0.303x", "divergence 0.004 nats of at most 0.005 nats: kept"), (0.006, None, "")],
)
def test_of_few_images_agreement_and_divergence_decide(settings, run, tried, monkeypatch, kl, budget, said):
    """The limit is half a point at a change cost of 1 nat; agreement on all of 10 images rules nothing out."""
    basis = replace(by_agreement(), change_cost_nats=1.0)
    monkeypatch.setattr(search_stage, "held_out_of", judging_by(basis))
    made, recorder = search_stage._prune_and_finetune, Recorder("")
    monkeypatch.setattr(search_stage, "_prune_and_finetune", lambda *asked: replace(made(*asked), scaled_kl_nats=kl))
    if budget is None:
        with pytest.raises(MissedError):
            search(settings(), run, recorder)
        assert any("of at most 0.005 nats: loses too much" in note for note in recorder.notes)
        return
    content = search(settings(), run, recorder)
    assert (content.budget, content.largest_kl_nats) == (budget, 0.005)
    assert any(said in note for note in recorder.notes)
    assert "search: decides by agreement with the original and divergence from its outputs" in recorder.notes[1]


def test_a_loss_that_no_budget_keeps_is_missed(settings, run, tried, monkeypatch):
    monkeypatch.setattr(search_stage, "held_out_of", judging_by(by_accuracy(0.99)))
    with pytest.raises(MissedError, match=r"\b0\.5x, 0\.707x.*\b0\.5 points\b") as caught:
        search(settings(), run, Silent())
    assert caught.value.exit_code == 3
    for word in ("--max-drop", "--learning-rate", "--batch-size", "--epochs", "10 validation images cannot resolve"):
        assert word in caught.value.hint
    assert not run.search.exists()


def test_what_cannot_be_searched_is_refused(settings, run):
    with pytest.raises(TargetError, match=r"\bsearch\b.*\bjetson-orin\b"):
        search(settings(target="jetson-orin"), run, Silent())
    with pytest.raises(SettingsError, match="--max-drop"):
        search(settings(max_drop=None), run, Silent())


def unheld(settings, size, channels):
    """Data without validation images of the first two classes."""
    last = MemorySplit(torch.zeros(4, channels, *size, dtype=torch.uint8), np.full(4, 2))
    return replace(dataset(settings, size, channels), validation=last)


def test_without_validation_images_nothing_can_be_searched(settings, run):
    bare = settings(classes=["stripes"])
    bare = bare.model_copy(update={"data": bare.data.model_copy(update={"name": "tests.stages.test_search:unheld"})})
    with pytest.raises(DataError, match=r"\bvalidation\b[\s\S]*--budget 0\.5x"):
        search(bare, run, Silent())


@pytest.mark.slow
def test_an_interrupted_trial_resumes_and_finished_ones_are_not_repeated(settings, run, monkeypatch):
    """The second fine-tuning is interrupted; afterwards neither the first trial nor the second pruning is repeated."""
    real = {name: getattr(search_stage, name) for name in ("prune", "finetune")}
    diary = []

    def noted(name, stop_at=None):
        def call(tried, folder, progress, *look):
            diary.append((name, str(tried.prune.budget)))
            if stop_at is not None and len([one for one in diary if one[0] == name]) == stop_at:
                raise KeyboardInterrupt
            return real[name](tried, folder, progress, *look)

        monkeypatch.setattr(search_stage, name, call)

    monkeypatch.setattr(search_stage, "POINTS", 2)
    monkeypatch.setattr(search_stage, "FIRST", 0.8)
    monkeypatch.setattr(search_stage, "LEAST", 0.7)
    noted("prune")
    noted("finetune", stop_at=2)
    with pytest.raises(KeyboardInterrupt):
        search(settings(max_drop=100.0), run, Silent())
    assert diary == [("prune", "0.8x"), ("finetune", "0.8x"), ("prune", "0.748x"), ("finetune", "0.748x")]
    assert not run.search.exists()
    diary.clear()
    noted("finetune")
    content = search(settings(max_drop=100.0), run, Silent())
    assert diary == [("finetune", "0.748x")]
    assert content.budget == "0.748x"
    for one, asked in zip(content.front, (0.748, 0.8), strict=True):
        assert 0 < one.speedup.ratio <= asked
        assert 0 <= one.validation_accuracy <= 1
        assert 0 <= one.agreement <= 1
        assert one.mean_kl_nats >= 0
        assert 0 < one.macs_share < 1
    kept = {path.name for path in run.searched.glob("*/*")} - {".lock"}
    assert kept == {"point.json", "plan.json", "pruned.safetensors"}


@pytest.mark.slow
def test_the_smallest_latency_within_a_loss_from_the_command_to_the_report(tiny, folder, monkeypatch):
    shutil.copy(folder / "blocks.safetensors", tiny)
    text = (tiny / "catro.toml").read_text().replace('budget = "50%flops"\n', "")
    write_text(tiny / "catro.toml", text)
    whole = ("run", "--model", "tests.tiny:blocks", "--checkpoint", "blocks.safetensors", "--max-drop", "60")
    done = command(*whole)
    (path,) = (tiny / "runs").iterdir()
    assert done.exit_code == exit_code_of(path), done.stderr
    run = RunFolder(path)
    found, report = load(Search, run), load(Report, run)
    assert report.search == found
    assert report.budget == load(Plan, run).budget == found.budget
    assert f"budget {found.budget}: the smallest of 5 tried" in " ".join(done.stdout.split())
    assert "<h2>Front</h2>" in run.report("html").read_text()
    plans = run.searched.glob("*/plan.json")
    (tried,) = [path.parent for path in plans if json.loads(path.read_text())["budget"] == found.budget]
    for file in (run.plan, run.pruned_weights):  # the network that the search measured, not one pruned again
        assert file.read_bytes() == (tried / file.name).read_bytes()
    assert report.finetune.epochs[-1].epoch == 2
    again = command(*whole)
    assert "search: unchanged, skipped" in again.stderr
    assert "done in" not in again.stderr
    assert "report: unchanged, skipped" in command("report").stderr  # the newest run is this one, not a trial's
    named = command(*whole, "--budget", "0.8x")
    assert "search" not in named.stderr
