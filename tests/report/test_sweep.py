"""The page and the table of a sweep."""

import re
from dataclasses import replace

import pytest

from catro_deploy.records.files import record_of, record_text
from catro_deploy.records.sweep import CellRecord, StepTimes, SweepRecord
from catro_deploy.report.cells import cell_figures, fronts
from catro_deploy.report.fronts import front_chart
from catro_deploy.report.sweep import cells_table, figure_words, ship_table, sweep_page, sweep_words
from tests.report.made import (
    make_bench,
    make_candidate,
    make_plan,
    make_quantize,
    make_report,
    make_verify,
)
from tests.report.pages import Page
from tests.sweep.figures import FIGURES


def cell(name, ms=0.5, decided_by=0.9, *, status="done", target="here", classes="all", problems=(), **figures):
    found = replace(FIGURES, latency_ms=ms, decided_by=decided_by, **figures)
    return CellRecord(name, target, classes, f"{ms}ms", "target", name, status, tuple(problems), (), found)


def sweep_of(*cells, max_drop=None):
    return SweepRecord(cells, max_drop)


def names(cells):
    return [one.name for one in cells]


def test_the_best_cells_are_those_that_no_other_beats():
    cells = [cell("slow", 0.9, 0.95), cell("fast", 0.3, 0.90), cell("beaten", 0.4, 0.89), cell("as fast", 0.3, 0.85)]
    (front,) = fronts(sweep_of(*cells))
    assert names(front.best) == ["fast", "slow"]
    assert names(front.cells) == ["slow", "fast", "beaten", "as fast"]
    assert front.shipped is None  # no allowed loss is set


def test_the_fastest_within_what_may_be_lost_on_validation_images_is_shipped():
    cells = [cell("slow", 0.9, 0.96), cell("middle", 0.6, 0.95), cell("fast", 0.3, 0.90)]
    assert fronts(sweep_of(*cells, max_drop=1.0))[0].shipped.name == "middle"
    assert fronts(sweep_of(*cells, max_drop=10.0))[0].shipped.name == "fast"
    assert fronts(sweep_of(*cells[2:], max_drop=1.0))[0].shipped is None


def test_what_missed_failed_or_was_not_measured_is_never_shipped():
    cells = [
        cell("missed", 0.1, status="missed"),
        cell("failed", 0.1, status="failed"),
        replace(cell("unmeasured"), figures=replace(FIGURES, latency_ms=None)),
        replace(cell("undecided"), figures=replace(FIGURES, decided_by=None)),
        replace(cell("waiting"), status="waiting", figures=None),
    ]
    (front,) = fronts(sweep_of(*cells, max_drop=99.0))
    assert front.best == ()
    assert front.shipped is None


def test_each_target_and_group_of_classes_has_a_front_of_its_own():
    cells = [cell("a"), cell("b", target="there"), cell("c", classes="some"), cell("d", target="there", classes="some")]
    found = fronts(sweep_of(*cells))
    assert [(one.target, one.classes, names(one.cells)) for one in found] == [
        ("here", "all", ["a"]),
        ("here", "some", ["c"]),
        ("there", "all", ["b"]),
        ("there", "some", ["d"]),
    ]
    rows = ship_table(found).rows
    assert rows[0][:4] == ("here", "all", "a/ship/pruned.onnx", "90.00%")


def test_figures_come_from_the_report_of_a_run():
    report = make_report(make_plan(), make_verify(0.98, 0.96, test_images=200), make_bench(2.0, 1.9, 2.1))
    found = cell_figures(report)
    assert (found.metric, found.score, found.original_score) == ("accuracy", 0.96, 0.98)
    assert found.change_points == pytest.approx(-2.0)
    assert found.ratio == pytest.approx(0.5)
    assert found.latency_ci95 == pytest.approx((found.original_ms / 2.1, found.original_ms / 1.9))
    unmeasured = cell_figures(make_report(make_plan(), None, None))
    assert (unmeasured.latency_ms, unmeasured.score) == (None, None)


@pytest.mark.parametrize("metric", ["accuracy", "agreement"])
def test_a_quantised_cell_is_compared_by_its_accuracy_whatever_decided_its_precision(metric):
    """fp32 cells have an accuracy on validation images, so the two can be compared only by that."""
    candidates = {name: replace(make_candidate(), accuracy=0.91) for name in ("fp32", "int8")}
    chosen = make_quantize(metric=metric, candidates=candidates)
    found = cell_figures(make_report(make_plan(), make_verify(0.98, 0.96), make_bench(2.0, 1.9, 2.1), quantize=chosen))
    assert found.decided_by == 0.91


def test_without_validation_images_there_is_a_reason_why_none_is_recommended():
    (front,) = fronts(sweep_of(replace(cell("a"), figures=replace(FIGURES, decided_by=None))))
    assert ship_table([front]).rows[0][2] == "nothing: there are no validation images to decide on"
    (front,) = fronts(sweep_of(cell("a", status="missed")))
    assert ship_table([front]).rows[0][2] == "nothing: no measured cell met all requirements"


def test_words_and_table_say_how_many_met_what_was_asked():
    missed = cell("b", status="missed", problems=("Too slow.",))
    waiting = replace(cell("c"), status="waiting", figures=None)
    sweep = sweep_of(cell("a"), missed, waiting)
    assert sweep_words(sweep) == "3 cells: 1 met all requirements, 1 missed a requirement, 1 not finished."
    unmeasured = replace(cell("d"), figures=replace(FIGURES, latency_ms=None))
    assert sweep_words(sweep_of(unmeasured)) == "1 cell: 0 met all requirements, 1 not measured."
    rows = cells_table(sweep).rows
    assert rows[0] == ("a", "90.00%", "-5.00", "0.500 ms", "0.500x", "1.5 kB", "met", "")
    assert rows[1][-2:] == ("missed", "Too slow.")
    assert rows[2] == ("c", "-", "-", "-", "-", "-", "not run yet", "")
    assert figure_words(FIGURES) == "90.00%, 0.500 ms (0.500x), 1.5 kB"


def test_the_page_is_whole_names_what_to_read_first_and_escapes_names():
    same = {"status": "missed", "problems": ("No network <meets> it.",)}
    cells = [cell("a&b", 0.5, 0.96, target="<there>"), cell("c", **same), cell("d", **same), cell("e", 0.7, 0.97)]
    html = sweep_page(sweep_of(*cells, max_drop=1.0), "my <sweep>")
    page = Page(html)
    assert "my <sweep>" in page.texts
    assert sum("No network <meets> it." in text for text in page.texts) == 1
    assert any("c, d" in text for text in page.texts)
    assert ("a", {"href": "a%26b/report.html"}) in page.seen
    assert len(set(page.ids)) == len(page.ids)
    assert not any(word in html for word in ("http:", "https:", "<script", "<link", "url("))


def test_meaningless_figures_are_marked():
    page = sweep_page(sweep_of(cell("a", invalid="the original guesses")), "sweep")
    assert "The figures are NOT valid: the original guesses." in page


def test_a_front_without_measurements_has_no_picture():
    (front,) = fronts(sweep_of(replace(cell("a"), figures=None)))
    assert front_chart(front) == ""


def test_the_picture_has_each_measured_cell_its_intervals_and_the_original():
    cells = [cell("a", 0.5, 0.96, precision="int8"), cell("b", 0.4, 0.9), cell("c", 0.45, 0.8, status="missed")]
    (front,) = fronts(sweep_of(*cells, max_drop=1.0))
    page = Page(front_chart(front))
    assert len(page.styled("circle", "pruned")) == 3
    assert len(page.styled("circle", "missed")) == 1
    assert len(page.styled("circle", "original")) == 1
    assert len(page.styled("circle", "chosen")) == 1
    assert len(page.styled("line", "spread")) == 6


def test_names_of_cells_that_are_close_together_do_not_touch():
    cells = [cell("a", 0.6, 0.90), cell("b", 0.61, 0.91, score=0.901), cell("c", 2.0, 0.99, score=0.99)]
    (front,) = fronts(sweep_of(*cells))
    first, second = re.findall(r'<text x="[^"]+" y="([^"]+)"[^>]*>0\.61?ms<', front_chart(front))
    assert abs(float(first) - float(second)) > 13


def test_the_record_reads_as_it_was_written():
    times = (StepTimes("prune", 1.0, 2.0, "host", "board", 1),)
    sweep = sweep_of(replace(cell("a"), steps=times), replace(cell("b"), figures=None), max_drop=0.5)
    assert record_of(SweepRecord, record_text(sweep), "sweep.json", "") == sweep
