"""``catro-deploy runs`` on real run folders."""

import json
import os
import shutil

import pytest

from tests.tiny import command, exit_code_of


@pytest.fixture
def two_runs(tiny, tiny_finished):
    """Two finished runs in runs/; the second was fine-tuned for one more epoch."""
    for name in ("first", "second"):
        shutil.copytree(tiny_finished, tiny / "runs" / name)
    result = command("finetune", "--run", "runs/second", "--epochs", "3")
    assert result.exit_code == 0, result.stderr
    for stage in ("export", "verify", "bench", "report"):
        result = command(stage, "--run", "runs/second")
        assert result.exit_code == exit_code_of(tiny / "runs" / "second", stage), result.stderr
    return tiny / "runs"


def test_runs_are_listed_shown_compared_and_removed(two_runs):
    listed = json.loads(command("runs", "list", "--json").stdout)
    assert [run["name"] for run in listed] == ["second", "first"]
    table = command("runs", "list").stdout.splitlines()
    assert table[0].split() == ["run", "date", "network", "target", "budget", "latency", "accuracy", "last", "stage"]
    assert [line.split()[0] for line in table[1:]] == ["second", "first"]

    shown = json.loads(command("runs", "show", "first", "--json").stdout)
    verified, bench = (json.loads((two_runs / f"first/{name}.json").read_text()) for name in ("verify", "bench"))
    assert shown["accuracy"] == verified["pruned"]["runtime"]
    assert shown["speedup"] == bench["original"]["p50_us"] / bench["pruned"]["p50_us"]
    assert shown["stage"] == "report"
    assert "Report: runs/second/report.html" in command("runs", "show").stdout

    compared = command("runs", "compare", "first", "second")
    assert compared.exit_code == 0, compared.stderr
    row = next(line for line in compared.stdout.splitlines() if line.startswith("finetune.epochs"))
    assert row.split() == ["finetune.epochs", "2", "3"]
    page = (two_runs / "compare-first-second.html").read_text()
    assert "finetune.epochs" in page
    assert not any(word in page for word in ("http:", "https:", "<script", "<link", "url("))
    assert command("runs", "compare", "first", "second", "--html", "own.html").exit_code == 0
    assert (two_runs.parent / "own.html").read_text() == page

    assert command("runs", "remove", "first", "--yes").exit_code == 0
    assert not (two_runs / "first").exists()
    assert (two_runs / "second" / "plan.json").is_file()


def test_the_page_of_runs_with_long_names_has_a_short_one(two_runs):
    for name in ("first", "second"):
        (two_runs / name).rename(two_runs / (name + "ä" * 120))
    compared = command("runs", "compare", "first", "second")
    assert compared.exit_code == 0, compared.stderr
    (page,) = two_runs.glob("compare-first*-second*.html")
    assert len(os.fsencode(page.name)) < 220


def test_a_comparison_is_shown_if_its_page_cannot_be_written(two_runs):
    compared = command("runs", "compare", "first", "second", "--html", "catro.toml/page.html")
    assert compared.exit_code == 1
    assert "finetune.epochs" in compared.stdout
    assert "Page:" not in compared.stdout
    assert "catro.toml/page.html could not be written" in compared.stderr


def test_the_report_compares_with_the_run_before_of_the_same_network(two_runs):
    report = json.loads((two_runs / "second/report.json").read_text())
    assert report["before"]["earlier"]["name"] == "first"
    assert ["finetune.epochs", "2", "3"] in report["before"]["settings"]
    for suffix in ("html", "md"):
        assert "Compared with the previous run" in (two_runs / f"second/report.{suffix}").read_text()
    alone = json.loads((two_runs / "first/report.json").read_text())
    assert alone["before"] is None
    assert "Compared with" not in (two_runs / "first/report.html").read_text()


def test_removing_asks_and_without_an_answer_leaves_the_run(tiny_run):
    result = command("runs", "remove", "run")
    assert result.exit_code == 1
    assert "Delete run (" in result.stderr
    assert tiny_run.plan.is_file()


def test_a_link_to_a_run_is_listed_by_its_own_name_and_not_removed(tiny_run):
    runs = tiny_run.path.parent / "runs"
    runs.mkdir(exist_ok=True)
    (runs / "linked").symlink_to(tiny_run.path.absolute())
    assert [run["name"] for run in json.loads(command("runs", "list", "--json").stdout)] == ["linked"]
    result = command("runs", "remove", "linked")
    assert result.exit_code == 2
    assert "is a link to" in result.stderr
    assert "Delete" not in result.stderr


def test_a_damaged_run_is_listed_with_what_is_wrong(tiny_run):
    runs = tiny_run.path.parent / "runs"
    shutil.copytree(tiny_run.path, runs / "damaged")
    (runs / "damaged" / "verify.json").write_text("{")
    result = command("runs", "list")
    assert result.exit_code == 0
    assert "damaged: runs/damaged/verify.json is not valid JSON" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "nobody"), "There is no run 'nobody'"),
        (("remove", "data", "--yes"), "data is not a run folder"),
        (("compare", "run", "rin"), "There is no run 'rin'"),
        (("show",), "There is no finished pruning"),
    ],
)
def test_what_is_no_run_is_reported(tiny_run, arguments, said):
    result = command("runs", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_headline_is_shown_once(tiny_run):
    result = command("report", "--run", "run", "--force")
    verdict = json.loads(tiny_run.report("json").read_text())["verdict"]
    assert (result.stdout + result.stderr).replace("\n", " ").count(verdict) == 1
