"""Which code changes make a stored row stale, and the state of rows without a digest."""

import json
import sys
from types import SimpleNamespace

import pytest

from benchmarks import common, figures, provenance
from benchmarks.provenance import depends_on, digest, named_rows
from benchmarks.stale import states, summary

BENCH = "benchmarks.accuracy.bench"
SOURCES = {
    "benchmarks": "",
    "benchmarks.accuracy": "",
    BENCH: "from catro_deploy.cut import cut\nfrom benchmarks.accuracy.bench_page import page\n"
    "from benchmarks.accuracy.bench_selection import is_selected\n",
    "benchmarks.accuracy.bench_page": "",
    "benchmarks.accuracy.bench_selection": "",
    "catro_deploy": "from catro_deploy.other import unused\n",
    "catro_deploy.cut": 'def cut(x):\n    "Cut."\n    run("catro_deploy.job:do")\n    return x + 1  # one more\n',
    "catro_deploy.job": "from catro_deploy.report.build import write\n",
    "catro_deploy.other": "",
    "catro_deploy.report": "",
    "catro_deploy.report.build": "",
}
MADE = {"by": BENCH, "code": digest(BENCH, SOURCES), "date": "2026-11-25"}


def changed(old, new):
    return SOURCES | {"catro_deploy.cut": SOURCES["catro_deploy.cut"].replace(old, new)}


def state(row, sources=SOURCES):
    (one,) = states("bench.json", {"rows": {"first": row}}, sources)
    return one.state


def test_a_benchmark_depends_on_what_it_imports_or_names_and_not_on_pages_selections_and_reports():
    found = {"benchmarks", "benchmarks.accuracy", BENCH, "catro_deploy", "catro_deploy.cut", "catro_deploy.job"}
    assert depends_on(BENCH, SOURCES) == found


@pytest.mark.parametrize("text", ["import catro_deploy", "from catro_deploy import prune"])
def test_what_the_package_offers_counts_for_whoever_asks_for_it(text):
    sources = SOURCES | {"catro_deploy.api": "", BENCH: text}
    assert "catro_deploy.api" in depends_on(BENCH, sources)
    assert "catro_deploy.api" not in depends_on("catro_deploy.cut", sources)


def test_a_row_is_current_until_code_that_made_it_changes():
    row = {"accuracy": 0.9, "made": MADE}
    assert state(row) == "current"
    assert state(row, changed("x + 1", "x + 2")) == "older code"
    assert state(row, SOURCES | {"catro_deploy.job": "do = print"}) == "older code"
    assert state(row, {name: text for name, text in SOURCES.items() if name != BENCH}) == "older code"


@pytest.mark.parametrize(("old", "new"), [("one more", "the next"), ("Cut.", "Cut it."), ("x + 1", "(x  +  1)")])
def test_comments_docstrings_and_layout_make_no_row_stale(old, new):
    assert state({"made": MADE}, changed(old, new)) == "current"


def test_code_that_is_not_imported_makes_no_row_stale():
    assert state({"made": MADE}, SOURCES | {"catro_deploy.other": "unused = 1"}) == "current"


def test_a_row_without_a_digest_is_unknown():
    (one,) = states("bench.json", {"rows": [{"environment": {"date": "2026-11-20"}}]}, SOURCES)
    assert one == ("bench.json", "0", "2026-11-20", "unknown", "")
    assert "| bench.json | 0 | 0 | 1 |" in summary([one])


def test_only_rows_that_a_page_cites_are_listed():
    (cited,) = [path for entry in figures.sources()["README.md"] for path in entry.get("means", [])][:1]
    file, _, rows, _ = cited.split("/")
    content = {"rows": {rows.replace("*", "0"): {}, "not-cited": {}}}
    assert [one.row for one in states(file, content, SOURCES, page="README.md")] == [rows.replace("*", "0")]
    assert states("none.json", content, SOURCES, page="README.md") == []
    assert not states(file, content, SOURCES, page="docs/none.md")


def test_a_row_is_cited_by_machine_and_a_file_without_rows_as_a_whole(monkeypatch):
    paths = {"values": ["a.json/machines/AMD EPYC/rows/x*/us"], "means": ["b.json/median_s"]}
    monkeypatch.setattr(figures, "sources", lambda: {"p.md": [paths]})
    found = [("a.json", "AMD EPYC: x1"), ("a.json", "Cortex: x1"), ("a.json", "AMD EPYC: y"), ("b.json", "all")]
    assert [figures.is_cited("p.md", *one) for one in found] == [True, False, False, True]


def test_rows_are_found_by_machine_in_lists_and_as_whole_files():
    machines = {"machines": {"EPYC": {"environment": {}, "rows": {"a": {}}}}}
    assert [name for name, _ in named_rows(machines)] == ["EPYC: a"]
    assert [name for name, _ in named_rows({"networks": {"b": {}}, "targets": {}})] == ["b"]
    assert named_rows({"median_s": 1.0}) == [("all", {"median_s": 1.0})]


def test_writing_stamps_new_and_changed_rows_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    common.write_result("bench.json", {"rows": {"old": {"us": 1}, "changed": {"us": 2}}})
    assert "made" not in (tmp_path / "bench.json").read_text()  # pytest is not a benchmark
    name = "benchmarks.accuracy.search"
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=SimpleNamespace(name=name)))
    common.write_result("bench.json", {"rows": {"old": {"us": 1}, "changed": {"us": 3}, "new": {"us": 4}}})
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert rows["old"] == {"us": 1}
    assert rows["new"]["made"] == rows["changed"]["made"]
    assert rows["new"]["made"]["code"] == digest(name, provenance.SOURCES)
