import re
from dataclasses import replace

import pytest

from catro_deploy.report.front import front_chart, front_line, front_table, front_words
from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from tests.report.made import make_bench, make_report, make_search, make_timed_plan, make_verify
from tests.report.pages import Page


def report(search):
    return make_report(make_timed_plan("0.354x"), make_verify(), make_bench(), search=search)


def test_the_line_names_what_was_found_and_what_it_cost():
    assert front_line(make_search()) == (
        "budget 0.354x: the smallest of 5 tried that loses at most 0.5 points; -0.30 on validation images after 10 "
        "epochs of fine-tuning"
    )


def test_one_budget_is_not_a_plural():
    (chosen,) = [one for one in make_search().front if one.budget == make_search().budget]
    assert front_words(make_search(front=(chosen,))).startswith("1 budget was tried for the smallest latency")


def test_the_table_holds_every_budget():
    rows = front_table(make_search()).rows
    assert rows[0] == ("0.1x", "no network meets it", "", "", "", "no")
    assert rows[1] == ("0.25x", "0.240x", "90.00%", "-9.00 (95% CI -10.00 to -8.00)", "34.00%", "no")
    assert rows[3] == ("0.354x", "0.350x", "98.70%", "-0.30 (95% CI -1.30 to +0.70)", "45.00%", "yes, kept")
    assert rows[4] == ("0.5x", "0.490x", "99.50%", "+0.50 (95% CI -0.50 to +1.50)", "59.00%", "yes")


def test_where_divergence_counted_it_has_a_column_and_a_sentence():
    front = tuple(
        one if one.speedup is None else replace(one, scaled_kl_nats=0.004, agreement=0.98)
        for one in make_search().front
    )
    reason = "one of 45 validation images is 2.2 points"
    few = make_search(
        front=front,
        largest_kl_nats=0.005,
        validation_images=45,
        metric="agreement",
        metric_reason=reason,
    )
    table = front_table(few)
    assert table.head[-2:] == ("Divergence", "Within the allowed loss")
    assert [row[-2] for row in table.rows] == ["", *["0.004 nats"] * 4]
    assert "may be at most 0.005 nats" in front_words(few)
    assert front_line(few).startswith(
        "budget 0.354x: the smallest of 5 tried that keeps the divergence from the original's outputs (0.004 nats) "
        "within 0.005 nats; "
    )
    assert "points of agreement with the original, which so few images cannot resolve, on" in front_line(few)
    assert "45 images are too few to count" in front_words(few)


def test_the_words_say_on_which_images_and_after_how_long():
    words = front_words(make_search(epochs=1))
    assert "fine-tuned for 1 epoch only" in words
    assert "validation images" in words
    assert "test images were not used" in words


def test_budgets_tried_without_fine_tuning_are_not_called_fine_tuned():
    search = make_search(epochs=0)
    words = front_words(search)
    assert "Each was pruned and measured, without fine-tuning; its accuracy is on validation images" in words
    assert words.endswith(f"The rest of this report is about the network of the budget kept, {search.budget}.")
    assert "on validation images, without fine-tuning, over latency" in "".join(Page(front_chart(search)).texts)


def test_the_picture_sets_points_against_latency():
    chart = Page(front_chart(make_search()))
    # The latency axis runs from 0.2 to 1: 0.24 is at 5%, the original at the end.
    filled, open_ = chart.styled("circle", "dot"), chart.styled("circle", "ring")
    assert [one["cx"] for one in filled] == ["18.75%", "36.25%"]
    assert [one["cx"] for one in open_] == ["100.00%", "5.00%", "11.25%", "18.75%"]
    # The axis of points runs from -2.5 to 10 over 150 pixels below 24: 0.5 is 24% up, the chosen 0.3 is 22.4% up.
    (limit,) = chart.styled("line", "limit")
    assert float(limit["y1"]) == pytest.approx(24 + 150 * 0.76)
    assert float(chart.styled("circle", "chosen")[0]["cy"]) == pytest.approx(24 + 150 * 0.776)
    assert "Not drawn, since no network meets it: 0.1x." in "".join(chart.texts)


def test_a_front_of_one_point_at_no_loss_can_be_drawn():
    only = make_search(max_drop=0.0, budget="0.5x", front=(replace(make_search().front[-1], drop_points=0.0),))
    chart = Page(front_chart(only))
    assert len(chart.styled("circle", "dot")) == 1
    assert "Not drawn" not in "".join(chart.texts)


def test_both_reports_have_a_front_if_a_budget_was_searched():
    searched, named = report(make_search()), report(None)
    assert searched.search == make_search()
    page = Page(to_html(searched))
    assert len(page.ids) == len(set(page.ids))
    assert "<h2>Front</h2>" in to_html(searched)
    assert re.search(r"## Front\n[\s\S]*\| 0\.354x \| 0\.350x \|", to_markdown(searched))
    assert named.search is None
    assert "Front" not in to_html(named) + to_markdown(named)
