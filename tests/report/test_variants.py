"""The variants of a pruning in the report."""

import re
from dataclasses import replace

from catro_deploy.records import Variant
from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.variants import dominating, variants_line, variants_table, variants_words
from catro_deploy.report.variants_chart import variants_chart
from tests.report.made import make_bench, make_report, make_timed_plan, make_variants, make_verify, slower_by


def report(**changes):
    return make_report(make_timed_plan("0.5x"), make_verify(), make_bench(), variants=make_variants(), **changes)


def test_variants_that_are_faster_and_nearer_than_the_first():
    """Ratios and divergences by hand; a variant that was trained for fewer steps cannot be compared."""
    tried = [(0.5, (0.9, 0.4)), (0.3, (0.8, 0.3)), (0.3, (0.9, 0.5)), (0.6, (0.7, 0.2)), (0.2, (0.1,))]
    found = tuple(Variant({}, slower_by(ratio, 0.01), 0.4, kl, 0.97, 0.96, (60.0,)) for ratio, kl in tried)
    assert dominating(make_variants(variants=(*found, Variant({"prune.worth": "scatter"})))) == [2]


def test_each_variant_has_a_row_with_the_steps_that_it_reached():
    table = variants_table(make_variants(), 1)
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert [row["Variant"] for row in rows] == [
        "precision int8",
        "as set",
        "criterion obs, depth never",
        "worth scatter",
    ]
    assert [row["up to 100 steps"] for row in rows] == ["0.05", "0.1", "", ""]
    assert [row["Latency"] for row in rows] == ["0.490x", "0.500x", "0.480x", "not met"]
    assert [row[""] for row in rows] == ["1, taken", "2", "3", "4"]


def test_without_labels_there_is_no_accuracy():
    (variant,) = make_variants().variants[:1]
    unlabelled = type(variant)(**vars(variant) | {"validation_accuracy": None})
    assert "Accuracy" not in variants_table(make_variants(variants=(unlabelled,)), 1).head
    assert "Accuracy" in variants_table(make_variants(), 1).head


def test_another_one_can_be_taken():
    assert [row[0] for row in variants_table(make_variants(), 2).rows] == ["1", "2, taken", "3", "4"]
    assert variants_line(make_variants(), 2) == "variant 2 of 4: as set; divergence 0.1 nats"


def test_one_variant_is_not_a_plural():
    words = variants_words(make_variants(variants=make_variants().variants[:1], screened=1))
    assert words.startswith("1 variant was pruned to the budget")
    assert "1 variant was screened before" in words
    assert words.count("variants") == 0


def test_variants_that_were_left_out_are_counted():
    assert "--search-minutes" not in variants_words(make_variants())
    assert "--search-minutes): 5 more" in variants_words(make_variants(left_out=5))


def test_what_screening_found_is_next_to_what_was_measured():
    assert "Screened" not in variants_table(make_variants(), 1).head
    assert "screened" not in variants_words(make_variants())
    (first, *others) = make_variants().variants
    found = make_variants(variants=(replace(first, screened_nats=0.017), *others), screened=24)
    table = variants_table(found, 1)
    assert [row[table.head.index("Screened")] for row in table.rows] == ["0.017", "", "", ""]
    assert "24 variants were screened" in variants_words(found)


def test_both_reports_have_the_section():
    assert "## Variants" in to_markdown(report())
    assert "<h2>Variants</h2>" in to_html(report())
    assert "Variants" not in to_markdown(make_report(make_timed_plan("0.5x"), make_verify(), make_bench()))


def test_the_picture_has_each_variant_that_met_its_budget():
    picture = variants_chart(make_variants(), 2)
    assert re.findall(r"<title>(\d): ", picture) == ["1", "2", "3"]  # the fourth did not meet its budget
    assert picture.count('class="ring chosen"') == 1
    assert picture.count('class="ring pruned"') == 1  # the third was not trained
    assert picture in to_html(report(variant_taken=2))


def test_several_budgets_are_shown():
    assert "--max-drop" not in variants_words(make_variants())
    (first, *others) = make_variants().variants
    found = make_variants(variants=(replace(first, changes={"prune.budget": "0.25x"}), *others))
    assert "their budgets" in variants_words(found)
    assert "--max-drop" in variants_words(found)
    assert found.variants[0].name == "budget 0.25x"
