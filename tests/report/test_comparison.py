import json

import pytest

from catro_deploy.files import write_json, write_text
from catro_deploy.report.comparison import (
    before_table,
    compare,
    comparison_page,
    comparison_table,
    comparison_words,
    run_before,
)
from catro_deploy.runs.folder import RunFolder

PLAN = {
    "model": "mine:net",
    "target": "x86-cpu",
    "budget": "0.5x",
    "model_classes": 4,
    "input_shape": [3, 64, 64],
    "classes": ["a", "b"],
    "original_macs": 1000,
    "pruned_macs": 400,
    "original_params": 200,
    "pruned_params": 80,
    "latency": {"how": "measured", "original_us": 1000.0, "predicted_us": 500.0},
}

STAGES = ("prune", "verify", "bench", "report")


@pytest.fixture
def make(tmp_path):
    """A run folder whose pruned network has ``accuracy`` and takes ``us`` of the original's 1000."""

    def run(
        name,
        accuracy=0.9,
        us=500.0,
        date="2026-11-23T10:00:00+0000",
        stages=("prune", "verify", "bench", "report"),
        **plan,
    ):
        folder = RunFolder(tmp_path / name)
        write_text(folder.settings, f'[prune]\nbudget = "0.5x"\n[finetune]\nepochs = {len(name)}\n')
        write_json(folder.plan, PLAN | plan)
        networks = {"original": {"runtime": 0.95}, "pruned": {"runtime": accuracy}}
        write_json(folder.verify, networks | {"test_images": 100, "agreement_with_original": {"share": 0.88}})
        times = {"original": {"p50_us": 1000.0}, "pruned": {"p50_us": us}}
        write_json(folder.bench, times | {"speedup": {"ci95": [1.9, 2.1]}})
        records = {stage: {"inputs": "", "outputs": {}, "missed": [], "finished": date} for stage in stages}
        write_text(folder.path / "stages.json", json.dumps(records))
        return folder

    return run


def rows(first, second):
    found = compare(first, second)
    return {row[0]: row[1:] for row in comparison_table(found["earlier"], found["this"]).rows}


def test_figures_stand_side_by_side_with_their_change(make):
    found = rows(make("old", 0.90, 500.0), make("newer", 0.93, 400.0))
    assert found["Accuracy, pruned"] == ("90.00%", "93.00%", "+3.00 points")
    assert found["Latency p50, pruned"] == ("500 us", "400 us", "-20.0%")
    assert found["Latency, of the original's"] == ("0.500x", "0.400x", "")
    assert found["Input"] == ("3x64x64", "3x64x64", "")
    assert compare(make("old"), make("newer"))["settings"] == [["finetune.epochs", "3", "5"]]


def test_within_a_report_heads_are_short_and_the_stage_is_left_out(make):
    table = before_table(compare(make("old", 0.90), make("newer", 0.93)))
    assert table.head == ("", "Run before", "This run", "Change")
    names = [row[0] for row in table.rows]
    assert "Accuracy, pruned" in names
    assert not {"Last stage", "Finished"} & set(names)


def test_what_was_measured_otherwise_is_not_subtracted(make):
    other = make("other", classes=["a", "c"], target="rpi")
    found = rows(make("old"), other)
    assert found["Accuracy, pruned"][2] == ""
    assert found["Latency p50, pruned"][2] == ""
    words = comparison_words(compare(make("old"), other))
    assert "different classes" in words
    assert "different targets" in words


def test_a_prediction_is_called_so_and_what_is_not_known_is_left_out(make):
    found = rows(make("old", stages=("prune",)), make("newer"))
    assert found["Latency, of the original's"] == ("0.500x (predicted)", "0.500x", "")
    assert found["Accuracy, pruned"] == ("-", "90.00%", "")
    assert "Accuracy, pruned" not in rows(make("old", stages=("prune",)), make("newer", stages=("prune",)))


def test_the_run_before_is_the_newest_finished_one_of_the_same_network(make):
    this = make("this", date="2026-11-23T12:00:00+0000")
    assert run_before(this) is None
    make("later", date="2026-11-23T13:00:00+0000")
    make("unfinished", date="2026-11-23T11:00:00+0000", stages=("prune",))
    make("another network", date="2026-11-23T11:00:00+0000", original_params=300)
    assert run_before(this) is None
    make("before")
    assert run_before(this).path.name == "before"


def test_a_page_escapes_what_it_shows(make):
    page = comparison_page(compare(make("old"), make("newer", budget="<b>0.5x</b>")))
    assert "&lt;b&gt;0.5x" in page
    assert "<b>" not in page
