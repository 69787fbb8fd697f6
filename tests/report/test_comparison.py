import pytest

from catro_deploy.files import write_text
from catro_deploy.records import StageRecord, Stages
from catro_deploy.records.files import write_record
from catro_deploy.report.comparison import (
    before_table,
    compare,
    comparison_page,
    comparison_table,
    comparison_words,
    run_before,
)
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import save
from tests.report.made import make_bench, make_latency, make_samples, make_timed_plan, make_verify

STAGES = ("prune", "verify", "bench", "report")


@pytest.fixture
def make(tmp_path):
    """Make a run folder whose pruned network has ``accuracy`` and takes ``us`` of the original's 1000."""

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
        latency = make_latency(original_us=1000.0, predicted_us=500.0)
        own = {"model": "mine:net", "model_classes": 4, "input_shape": (3, 64, 64), "pruned_macs": 400}
        save(make_timed_plan(latency=latency, **(own | plan)), folder)
        save(make_verify(0.95, accuracy, test_images=100), folder)
        times = {"original": make_samples([1000.0]), "pruned": make_samples([us])}
        save(make_bench(2.0, 1.9, 2.1, **times), folder)
        records = {stage: StageRecord("", {}, 1.0, date, ()) for stage in stages}
        write_record(Stages(records), folder.path / "stages.json")
        return folder

    return run


def rows(first, second):
    found = compare(first, second)
    return {row[0]: row[1:] for row in comparison_table(found.earlier, found.this).rows}


def test_figures_stand_side_by_side_with_their_change(make):
    found = rows(make("old", 0.90, 500.0), make("newer", 0.93, 400.0))
    assert found["Accuracy, pruned"] == ("90.00%", "93.00%", "+3.00 points")
    assert found["Latency p50, pruned"] == ("500 us", "400 us", "-20.0%")
    assert found["Latency, of the original's"] == ("0.500x", "0.400x", "")
    assert found["Input"] == ("3x64x64", "3x64x64", "")
    resized = rows(make("old"), make("smaller", resized_to=(48, 48)))
    assert resized["Input"] == ("3x64x64", "3x64x64, resized to 48", "")
    assert compare(make("old"), make("newer")).settings == (("finetune.epochs", "3", "5"),)


def test_within_a_report_heads_are_short_and_the_stage_is_left_out(make):
    table = before_table(compare(make("old", 0.90), make("newer", 0.93)))
    assert table.head == ("", "Previous run", "This run", "Change")
    names = [row[0] for row in table.rows]
    assert "Accuracy, pruned" in names
    assert not {"Last stage", "Finished"} & set(names)


def test_what_was_measured_otherwise_is_not_subtracted(make):
    other = make("other", classes=("a", "c"), target="rpi")
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
    page = comparison_page(compare(make("old"), make("newer", model="<b>mine:net</b>")))
    assert "&lt;b&gt;mine:net" in page
    assert "<b>" not in page
