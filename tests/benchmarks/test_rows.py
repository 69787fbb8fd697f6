"""Rows of benchmarks: which are run, which results are kept, and what is evaluated once for several rows."""

import json

from benchmarks import common, provenance, rows
from benchmarks.accuracy.reconstruction_rows import rows_of
from catro_deploy.settings import load_settings

NOWHERE = "no.such.module"  # running a row with it fails


def test_results_of_another_machine_are_taken_and_rows_that_fail_passed_over(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    first, second, failing = rows_of("resnet20-cifar10", (0,))[:3]
    trained = {"accuracy": 0.9, "epochs": 10, "trained_on": {"device": "NVIDIA H100 80GB HBM3"}}
    for row in (first, second):
        (tmp_path / f"{row.name}.json").write_text(json.dumps(trained))
    rows.run_missing(NOWHERE, "found.json", [first, second, failing], tmp_path, {}, jobs=2)
    found = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert found.keys() == {first.name, second.name}
    assert found[first.name]["trained_on"] == trained["trained_on"]
    assert f"{failing.name}: Command" in capsys.readouterr().err


def test_other_epochs_than_were_asked_for_are_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    (row,) = rows_of("resnet20-cifar10", (0,))[:1]
    (tmp_path / f"{row.name}.json").write_text(json.dumps({"accuracy": 0.9, "epochs": 10}))
    rows.run_missing(NOWHERE, "found.json", [row], tmp_path, {"epochs": 20})
    assert not (tmp_path / "found.json").exists()


def test_rows_that_older_code_made_are_run_again_if_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    old, current = rows_of("resnet20-cifar10", (0,))[:2]
    sources = {"benchmarks.one": "x = 1"}
    monkeypatch.setattr(rows, "SOURCES", sources)
    made = {"by": "benchmarks.one", "code": provenance.digest("benchmarks.one", sources)}
    stored = {
        old.name: {"accuracy": 0.8, "made": made | {"code": "0123456789abcdef"}},
        current.name: {"accuracy": 0.8, "made": made},
    }
    for row in (old, current):
        (tmp_path / f"{row.name}.json").write_text(json.dumps({"accuracy": 0.9}))

    def accuracies(**options):
        (tmp_path / "found.json").write_text(json.dumps({"rows": stored}))
        rows.run_missing(NOWHERE, "found.json", [old, current], tmp_path, {}, **options)
        found = json.loads((tmp_path / "found.json").read_text())["rows"]
        return found[old.name]["accuracy"], found[current.name]["accuracy"]

    assert accuracies() == (0.8, 0.8)
    assert accuracies(stale=True) == (0.9, 0.8)


def test_an_original_is_evaluated_once_for_each_task_and_device(tmp_path):
    checkpoint = tmp_path / "weights.pt"
    checkpoint.write_bytes(b"weights")

    def found(accuracy, device="cpu", classes=(), size=32):
        sections = {"model": {"checkpoint": checkpoint}, "data": {"size": size}, "prune": {"classes": list(classes)}}
        return rows.accuracy_of_original(lambda: accuracy, load_settings(None, sections), device, tmp_path)

    assert [found(0.9), found(0.8)] == [0.9, 0.9]
    assert found(0.7, device="cuda") == 0.7
    assert found(0.6, classes=["stop"]) == 0.6
    assert found(0.5, size=64) == 0.5
    checkpoint.write_bytes(b"other weights")
    assert found(0.4) == 0.4


def test_marks_say_what_trained_a_row_and_by_which_recipe():
    def trained(device="AMD EPYC", recipe="gentle", **finetune):
        settings = {"finetune": {"epochs": 3} | finetune}
        return {"recipe": recipe, "trained_on": {"device": device}, "settings": settings}

    assert rows.marks([trained()]) == "°"
    assert rows.marks([trained(distill_features=None)]) == ""
    assert rows.marks([trained(recipe="usual")]) == rows.marks([trained(epochs=0)]) == ""
    assert rows.marks([trained(distill_features=None), trained("NVIDIA H100 80GB HBM3")]) == "*°"
