import itertools

import pytest

from catro_deploy.files import write_text
from catro_deploy.pipeline import keep_earlier, run_stages
from catro_deploy.runs.folder import RunFolder
from tests.notes import Notes
from tests.pipeline.driving import ALL, go, settings_with
from tests.quick_stages import TABLE, diary


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "baseline.safetensors", "weights")


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


def notes_before(run, stages=ALL, *, force=False, **flags):
    """The notes before the first stage is done, other than that stages are skipped."""
    notes = Notes()
    run_stages(stages, settings_with(**flags), run, notes, force=force, table=TABLE)
    before = itertools.takewhile(lambda line: ": done in" not in line, notes.lines)
    return [line for line in before if "skipped" not in line]


def beside(run, stages=ALL, *, force=False, **flags):
    return keep_earlier(stages, settings_with(**flags), run, force=force, table=TABLE)


def test_a_first_run_and_an_unchanged_one_replace_nothing(run):
    assert notes_before(run) == []
    assert notes_before(run) == []


def test_replaced_results_are_reported_with_the_changed_settings(run):
    go(run)
    said = notes_before(run, finetune={"epochs": 3, "batch_size": 32})
    assert said == [
        f"replacing earlier results in {run.path}: weights.safetensors, finetune.json, original.onnx, pruned.onnx, "
        "verify.json, bench.json, ship/model.json, ship/pruned.onnx, report.json, report.md, report.html",
        "  finetune.epochs: 2 -> 3",
        "  finetune.batch_size: not set -> 32",
        "  to keep both: --keep, or another folder with --run",
    ]


def test_results_that_a_stage_puts_out_of_date_are_named(run):
    go(run)
    said = notes_before(run, ("finetune",), finetune={"epochs": 3})
    assert said[0] == f"replacing earlier results in {run.path}: weights.safetensors, finetune.json"
    assert "  out of date afterwards: the results of export, verify, bench, ship, report" in said


def test_without_a_changed_setting_the_reason_is_given(run, tmp_path):
    go(run)
    assert "  because of --force" in notes_before(run, ("bench",), force=True)
    write_text(tmp_path / "baseline.safetensors", "other weights")
    assert (
        "  because the model, the images or the device changed, or an earlier command changed their settings"
    ) in notes_before(run)


def test_many_changes_are_cut_short(run):
    go(run)
    keys = ("opset", "dynamic_batch")
    finetune = {"epochs": 3, "batch_size": 1, "momentum": 0.5, "seed": 1, "distill": 0.5, "augment": "none"}
    assert "  and 1 more setting" in notes_before(
        run, finetune=finetune | {"weight_decay": 0.1}, export=dict(zip(keys, (19, True), strict=True))
    )


def test_keep_leaves_the_earlier_results_as_they_are(run):
    go(run)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    other = beside(run, finetune={"epochs": 3})
    assert other.path == run.path.with_name("run-2")
    assert other.is_intact("prune")
    assert list(other.finished()) == ["prune"]
    assert not other.finetune.exists()
    assert not other.report("html").exists()
    assert go(other, finetune={"epochs": 3}) == list(ALL[1:])
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
    assert other.weights.read_text() == "3 epochs"


def test_keep_with_the_same_settings_again_continues_in_the_folder_that_it_made(run):
    go(run)
    other = beside(run, finetune={"epochs": 3})
    assert beside(run, finetune={"epochs": 3}) == other
    go(other, finetune={"epochs": 3})
    assert beside(run, finetune={"epochs": 3}) == other
    assert go(other, finetune={"epochs": 3}) == []
    assert beside(run, finetune={"epochs": 4}).path.name == "run-3"
    assert beside(run, finetune={"epochs": 3}, force=True).path.name == "run-4"


def test_keep_takes_the_folder_itself_where_nothing_is_replaced(run):
    assert beside(run) == run
    go(run, ALL[:2])
    assert beside(run) == run
    assert go(run) == list(ALL[2:])


def test_keep_copies_the_trials_of_a_search_that_stays(run):
    flags = {"prune": {"budget": "auto"}, "verify": {"max_drop": 5.0}}
    go(run, ("search", *ALL), **flags)
    write_text(run.searched / "trial" / "point.json", "{}")
    other = beside(run, ("search", *ALL), bench={"threads": 2}, **flags)
    assert diary(other) == []
    assert other.search.is_file() == (other.searched / "trial" / "point.json").is_file()
