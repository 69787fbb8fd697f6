import re

import pytest

from catro_deploy.records import CostErrors, Staircase
from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from tests.report.made import (
    make_bench,
    make_estimate,
    make_finetune,
    make_latency,
    make_plan,
    make_report,
    make_timed_plan,
    make_verify,
)
from tests.report.pages import Page

EVIL = '"><script>x</script>'


def page(plan, bench=None, finetune=None):
    return to_html(make_report(plan, make_verify(), bench or make_bench(2.5, 2.0, 3.125, 1000), finetune=finetune))


def unmeasured(plan=None, finetune=None):
    return to_html(make_report(plan or make_estimate(), finetune=finetune))


def words(html):
    return " ".join("".join(Page(html).texts).split())


def section(html, name):
    """The text of one section."""
    (found,) = [part for part in html.split("<section>") if part.startswith(f"<h2>{name}")]
    return " ".join(re.sub(r"<[^>]+>", " ", found).split())


@pytest.mark.parametrize("budget", ["0.5x", "400us"])
@pytest.mark.parametrize("groups", [1, 7, 40])
def test_pages_of_latency_are_well_formed_with_unique_ids_and_load_nothing(budget, groups):
    html = page(make_timed_plan(budget, groups), finetune=make_finetune())
    parsed = Page(html)

    assert len(parsed.ids) == len(set(parsed.ids))
    assert not re.findall(r"https?://|url\(|@import", html)
    pictures = [attrs for tag, attrs in parsed.seen if tag == "svg" and attrs.get("role") == "img"]
    assert all("aria-label" in attrs or set(attrs["aria-labelledby"].split()) <= set(parsed.ids) for attrs in pictures)


@pytest.mark.parametrize("finetune", [None, make_finetune()], ids=["raw", "fine-tuned"])
@pytest.mark.parametrize("plan", [make_estimate(), make_plan(), make_timed_plan()], ids=["estimate", "flops", "timed"])
def test_pages_without_measurements_are_well_formed(plan, finetune):
    html = unmeasured(plan, finetune)

    assert "faster" not in words(html).split("Load it in PyTorch")[0]
    assert "Basis of the figures" in html
    assert "catro-deploy bench" not in html


def test_a_plan_of_macs_has_no_section_of_latency():
    headings = re.findall(r"<h2>(.*?)</h2>", page(make_plan()))

    assert not {"Budget", "Staircases", "Time by layer", "Cost model"} & set(headings)


def test_names_from_outside_cannot_become_markup():
    latency = make_latency(
        source=EVIL,
        warnings=(EVIL,),
        by_layer={EVIL: (1.0, 0.0)},
        staircases={EVIL: Staircase(((1, 2.0), (2, 3.0)), (1, 2), 1)},
    )

    html = page(make_timed_plan(latency=latency, dropped=(EVIL,)))

    assert "<script" not in html


def test_the_budget_is_a_figure_of_its_own_with_its_measurement():
    html = page(make_timed_plan("0.5x"))

    assert "Budget 0.5x 0.400× met, measured predicted 0.480x" in " ".join(re.sub(r"<[^>]+>", " ", html).split())
    budget = section(html, "Budget")
    assert "Requested 0.500x Predicted 0.480x Measured 0.400x 95% CI of the measurement 0.320x to 0.500x" in budget
    assert "Outcome met MACs used, for information 49.00%" in budget


def test_a_prediction_above_a_budget_that_is_met_is_explained():
    above = make_latency(predicted_us=516.0)

    budget = section(page(make_timed_plan("0.5x", latency=above)), "Budget")
    assert "The budget is met although the prediction is above it" in budget
    assert "1.00 ms in the plan" in budget
    assert "in the same measurement, 1.84 ms in the last one" in section(
        page(make_timed_plan("0.5x", latency=above), make_bench(2.5, 2.0, 3.125)), "Budget"
    )
    assert "a share of" not in section(page(make_timed_plan("515us", latency=above)), "Budget")
    explained = "although the prediction"
    assert explained not in section(page(make_timed_plan("0.5x")), "Budget")
    assert explained not in section(page(make_timed_plan("0.3x", latency=above)), "Budget"), "it is missed"
    assert explained in to_markdown(make_report(make_timed_plan("0.5x", latency=above), bench=make_bench(2.5, 2.0, 3)))


def test_sentences_on_a_page_have_micro_signs():
    html = page(make_timed_plan("0.5x", latency=make_latency(original_us=900.0, predicted_us=516.0)))
    assert "900 µs in the plan" in section(html, "Budget")


def test_times_of_layers_have_the_same_digits_in_chart_and_table():
    html = page(make_timed_plan(latency=make_latency(by_layer={"conv": (183.4, 3.84), "fc": (12.34, 0.987)})))

    layers = section(html, "Time by layer")
    assert "183 → 3.84" in layers
    assert "conv 183 3.84" in layers
    assert "fc 12.3 0.99" in layers


def test_a_missed_budget_is_loud():
    top = page(make_timed_plan("0.3x")).split("<h2>")[0]

    assert "OVER BUDGET: 0.400x" in top
    assert 'class="big bad">0.400×' in top


def test_rounds_are_drawn_between_prediction_measurement_and_budget():
    parsed = Page(page(make_timed_plan("0.5x")))

    # Two rounds and the final bench: a ring, a dot and a whisker each, against one line.
    assert len(parsed.styled("line", "limit")) == 1
    assert len(parsed.styled("line", "whisker")) == 3
    # For 0.32 to 0.53 the axis runs from 0.3 to 0.6 in tenths: 0.5 is at two thirds.
    assert parsed.styled("line", "limit")[0]["x1"] == "66.67%"
    table = section(page(make_timed_plan("0.5x")), "Budget")
    assert "1 0.490x 0.520x 0.510x to 0.530x 104.0% 530 µs of 1.02 ms" in table
    assert "2, taken 0.480x 0.490x 0.480x to 0.500x 98.0% 495 µs of 1.01 ms" in table


def test_staircases_mark_candidates_the_chosen_and_the_original_width():
    parsed = Page(page(make_timed_plan()))

    # layer0.conv1: 2, 4 and 16 are candidates; 4 is chosen, 16 the original. gone.conv1: 4, 8 and 16, none chosen.
    assert len(parsed.styled("circle", "candidate")) == 1 + 2
    assert [attrs["x1"] for attrs in parsed.styled("line", "chosen")] == ["25.00%"]
    assert "16 → 4, no period" in parsed.texts
    assert "16 → removed, period 4" in parsed.texts


def test_of_many_staircases_those_with_most_time_and_no_two_similar_are_open():
    longest = {"a": 100.0, "like_a": 97.0, "b": 60.0, "like_b": 58.0, "c": 40.0, "d": 30.0, "e": 20.0, "f": 10.0}
    stairs = {name: Staircase(((8, us / 2), (16, us)), (8, 16), 8) for name, us in longest.items()}
    other = {"other_widths": Staircase(((4, 25.0), (16, 100.0)), (4, 16), 4)}

    html = page(make_timed_plan(latency=make_latency(staircases=stairs | other)))

    part = next(part for part in html.split("<section>") if part.startswith("<h2>Staircases"))
    shown, folded = (re.findall(r'<p class="head">(.*?)</p>', piece) for piece in part.split("<details>")[:2])
    assert shown == ["a", "other_widths", "b", "c", "d", "e"]
    assert folded == ["like_a", "like_b", "f"]
    assert "3 more groups, like one of these or with less time" in part


def test_layers_have_a_bar_before_and_after_and_those_gone_say_so():
    parsed = Page(page(make_timed_plan()))

    assert "600 → 150" in parsed.texts
    assert "120 → removed" in parsed.texts
    gone = section(page(make_timed_plan()), "Widths")
    assert "1 residual branch is removed, named by the last layer: gone.conv2." in gone
    assert "Removed layers: gone.conv1, gone.conv2." in gone
    assert "16 → 0" in gone


def test_of_many_layers_the_longest_are_drawn_and_the_rest_is_counted():
    layers = {f"conv{i}": (float(100 - i), 10.0) for i in range(40)}

    drawn = section(page(make_timed_plan(latency=make_latency(by_layer=layers))), "Time by layer")

    # The last eight took 68 + 67 + ... + 61 = 516 us.
    assert "8 layers with less time are not drawn: 516 → 80.0 microseconds." in drawn


def test_errors_of_the_cost_model_are_shown_with_their_source():
    shown = section(page(make_timed_plan()), "Cost model")

    assert "Latency profile of 2026-11-20: 363 networks." in shown
    assert "40 90.0% 97.5% 3.1% 0.950" in shown
    assert "proven to be within 0.25% of the best" in shown


def test_every_section_of_an_estimate_is_marked():
    html = unmeasured(finetune=make_finetune())

    marked = re.findall(r'<h2>([\w ]+?) <span class="badge">estimate</span></h2>', html)
    assert marked == ["Budget", "Staircases", "Time by layer", "Cost model"]
    assert 'Latency <span class="badge">estimate</span></dt>' in html
    assert "These times are estimated, not measured." in words(html)
    assert "No networks were held out to evaluate it." in words(html)
    assert "No figure here is estimated" not in words(html)
    assert "Validation accuracy" in words(html)


def test_an_estimate_that_was_measured_afterwards_keeps_both_apart():
    html = page(make_estimate())

    assert 'Budget <span class="badge">estimate</span></h2>' in html
    assert "estimate 0.480x" in words(html)
    assert "2.50x faster" in words(html)


def test_a_measured_plan_has_no_badge():
    assert 'class="badge"' not in page(make_timed_plan())


def test_a_model_that_is_never_right_is_not_shown_as_right():
    errors = CostErrors(10, 0.0, 0.0, 0.5, -0.5)

    assert "10 0.0% 0.0% 50.0% −0.500" in section(
        page(make_timed_plan(latency=make_latency(errors=errors))), "Cost model"
    )
