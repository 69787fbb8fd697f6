"""What the reports say about the layers that were solved again."""

import pytest

from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.reconstruction import (
    layers_table,
    left_table,
    losses_table,
    reconstruction_chart,
    reconstruction_line,
    solved_words,
)
from tests.report.made import make_bench, make_estimate, make_plan, make_reconstruction, make_report, make_verify
from tests.report.pages import Page


def report_of(reconstruction):
    return make_report(make_plan(reconstruction=reconstruction), make_verify(), make_bench())


def record_of(**changes):
    return report_of(make_reconstruction(**changes)).reconstruction


def test_the_line_names_the_layer_that_is_explained_least():
    expected = "KL from the original's outputs 1.25 nats -> 0.0625 nats; least explained: layer0.conv2, 7.69%"
    assert reconstruction_line(record_of()) == f"reconstructed: {expected}"
    assert reconstruction_line(record_of(explained={})).endswith("0.0625 nats")


@pytest.mark.parametrize(("predicted", "rows"), [(None, 2), (0.05, 3)])
def test_a_predicted_loss_is_shown_with_the_real_one(predicted, rows):
    table = losses_table(record_of(loss_predicted=predicted))
    assert len(table.rows) == rows
    assert table.rows[-1] == ("After reconstruction", "0.0625 nats")
    assert (("Predicted by the choice of widths", "0.05 nats") in table.rows) == (predicted is not None)


def test_the_chart_has_the_ten_lowest_layers_and_the_table_all_in_their_order():
    record = record_of(explained={"high": 0.9, "below": -0.5} | {f"layer{i}": i / 20 for i in range(12)})
    chart = Page(reconstruction_chart(record))
    names = [text for text in chart.texts if text.startswith(("layer", "high", "below")) and ":" not in text]
    assert names == ["below", *(f"layer{i}" for i in range(9))]
    assert min(float(attrs["width"].removesuffix("%")) for attrs in chart.styled("rect", "bar")) == 0
    assert "The layers that are explained least" in "".join(chart.texts)
    assert "All layers, the lowest first" in reconstruction_chart(record_of(explained={"fc": 0.5}))
    rows = layers_table(record).rows
    assert rows[:2] == (("high", "90.00%"), ("below", "-50.00%"))
    assert len(rows) == 14


def test_both_reports_have_the_section():
    report = report_of(make_reconstruction())
    markdown, html = to_markdown(report), to_html(report)
    assert "## Reconstruction\n\nKL divergence of the outputs" in markdown
    assert "12 layers were solved again, 1 not." in markdown
    assert "| layer0.conv2 | 7.69% |" in markdown
    assert "| odd | it is unusual |" in markdown
    parsed = Page(html)
    assert {"Reconstruction", "Outputs explained", "Layers left as they are", "it is unusual"} <= set(parsed.texts)
    assert len(parsed.ids) == len(set(parsed.ids))


def test_a_solution_that_was_not_used_has_no_layers():
    record = record_of(kl_reconstructed=1.25, left={})
    assert "the layers keep the original's weights" in solved_words(record)
    assert "from the original's for images resized to 24x20, at" in solved_words(record, (24, 20))
    assert "resized" not in solved_words(record)
    assert not layers_table(record).rows
    assert not left_table(record).rows
    assert "least explained" not in reconstruction_line(record)
    html = to_html(report_of(make_reconstruction(kl_reconstructed=1.25, left={})))
    assert "Outputs explained" not in html
    assert "brought the outputs no closer" in html


def test_a_plan_without_reconstruction_has_no_section():
    html = to_html(report_of(None))
    assert "Reconstruction" not in Page(html).texts


def test_nothing_need_be_measured_for_the_section():
    plan = make_estimate(reconstruction=make_reconstruction())
    assert "## Reconstruction" in to_markdown(make_report(plan))
