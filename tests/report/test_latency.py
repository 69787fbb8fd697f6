from dataclasses import asdict, replace

import pytest

from catro_deploy.records.figures import Dropped, LayerTime, MacsShare
from catro_deploy.records.files import record_of, record_text
from catro_deploy.records.report import Report
from catro_deploy.report.latency import budget_used, latency_figures
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


def test_a_budget_of_macs_is_counted():
    assert asdict(budget_used(make_plan(), make_bench())) == {
        "unit": "flops",
        "asked": 0.5,
        "predicted": None,
        "used": 0.49,
        "ci95": None,
        "how": "counted",
        "outcome": "met",
    }


def test_a_share_of_latency_is_the_inverse_of_the_speedup():
    used = budget_used(make_timed_plan("0.5x"), make_bench(2.5, 2.0, 3.125))

    assert used.asked == 0.5
    assert used.predicted == pytest.approx(480 / 1000)
    assert used.used == pytest.approx(0.4)
    assert used.ci95 == pytest.approx((0.32, 0.5))
    assert (used.how, used.outcome) == ("measured", "met")


def test_a_budget_in_microseconds_is_held_against_the_measured_median():
    used = budget_used(make_timed_plan("400us"), make_bench(2.5, 2.0, 3.125, original_us=1000))

    assert (used.unit, used.asked, used.predicted, used.used) == ("us", 400, 480, 400)
    assert used.ci95 == pytest.approx((320, 500))
    assert used.outcome == "met"


@pytest.mark.parametrize(
    ("budget", "outcome"), [("0.41x", "met"), ("0.39x", "unsure"), ("0.32x", "unsure"), ("0.31x", "missed")]
)
def test_a_budget_is_missed_only_beyond_the_noise(budget, outcome):
    # Measured: 0.4, with an interval of 0.32 to 0.5.
    assert budget_used(make_timed_plan(budget), make_bench(2.5, 2.0, 3.125)).outcome == outcome


def test_what_was_not_measured_is_not_called_used():
    used = budget_used(make_estimate(), None)

    assert (used.used, used.ci95, used.how, used.outcome) == (None, None, "not measured", "not measured")
    assert used.predicted == 0.48


def test_a_plan_without_latency_has_no_record_of_it():
    assert latency_figures(make_plan()) is None


@pytest.mark.parametrize(
    ("budget", "first"),
    [("0.5x", (0.49, 0.52, [0.51, 0.53])), ("500us", (490.0, 530.4, [0.51 * 1020, 0.53 * 1020]))],
)
def test_rounds_are_shown_in_the_budgets_unit_and_the_one_with_the_plans_widths_was_taken(budget, first):
    rounds = latency_figures(make_timed_plan(budget)).rounds

    assert (rounds[0].predicted, rounds[0].measured) == pytest.approx(first[:2])
    assert rounds[0].ci95 == pytest.approx(first[2])
    assert [one.taken for one in rounds] == [False, True]
    assert rounds[1].original_us == 1010


def test_staircases_come_by_their_time_and_groups_that_are_gone_have_no_width():
    record = latency_figures(make_timed_plan(groups=3))

    # At full width: 600, 300, 200 and, for the removed branch, 120 us.
    widths = [(one.group, one.width, one.chosen) for one in record.staircases]
    assert widths == [("layer0.conv1", 16, 4), ("layer1.conv1", 16, 8), ("layer2.conv1", 16, 8), ("gone.conv1", 16, 0)]
    assert asdict(record.staircases[-1]) == {
        "group": "gone.conv1",
        "width": 16,
        "chosen": 0,
        "period": 4,
        "candidates": (4, 8, 16),
        "swept": ((4, 60.0), (8, 90.0), (16, 120.0)),
    }


def test_the_report_holds_budget_depth_and_latency():
    report = make_report(make_timed_plan(), make_verify(), make_bench(2.5, 2.0, 3.125), finetune=make_finetune())

    assert report.macs_share == MacsShare(used=0.49, budget=None)
    assert report.budget_used.unit == "x"
    assert report.dropped == Dropped(("gone.conv2",), ("gone.conv1", "gone.conv2"))
    widths = [(group.name, group.width_before, group.width_after) for group in report.groups]
    assert widths == [("layer0.conv1", 16, 4), ("gone.conv1", 16, 0), ("fc", 2, 2)]
    assert report.latency_plan.layers[0] == LayerTime("layer0.conv1", before_us=600.0, after_us=150.0)
    assert report.latency_plan.errors.within_10 == 0.975
    assert record_of(Report, record_text(report), "report.json", "") == report


def test_warnings_of_the_plan_and_the_bench_stand_once_each():
    busy = make_bench().warnings[0]
    latency = make_latency(warnings=("Estimated.", busy))

    report = make_report(make_timed_plan(latency=latency), make_verify(), make_bench(), finetune=make_finetune())

    assert report.warnings == ("Estimated.", busy)


def test_without_bench_and_verify_nothing_is_claimed_as_measured():
    report = make_report(make_estimate(), finetune=make_finetune())

    assert report.speedup is report.latency_histogram is report.verification is None
    assert report.accuracy_drop_points is None
    assert asdict(report.original) == {
        "accuracy": None,
        "accuracy_ci95": None,
        "macs": 1000,
        "params": 400,
        "latency_ms": None,
        "latency_cv": None,
        "calls": None,
    }
    assert report.per_class == ()
    assert report.environment == {"target": "jetson-orin", "how": "not measured"}
    assert report.validation_accuracy == 0.99
    assert record_of(Report, record_text(report), "report.json", "") == report


@pytest.mark.parametrize("missing", ["verify", "bench"])
def test_either_may_be_missing_alone(missing):
    parts = {"verify": make_verify(), "bench": make_bench()} | {missing: None}

    report = make_report(make_estimate(), parts["verify"], parts["bench"], finetune=make_finetune())

    assert (report.verification is None) == (missing == "verify")
    assert (report.speedup is None) == (missing == "bench")


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (make_plan(), "No figure here is estimated."),
        (make_timed_plan(), "No other figure here is estimated."),
        (make_estimate(), 'Times called "estimate" were computed, not measured (roofline of an Orin).'),
    ],
    ids=["flops", "measured", "estimate"],
)
def test_the_word_on_what_is_measured_stays_true(plan, says):
    measured = make_report(plan, make_verify(), make_bench()).measured

    assert measured.endswith(says)
    assert measured.startswith("Latencies were measured on the device")


def test_the_word_on_what_is_measured_names_what_is_not():
    measured = make_report(make_estimate()).measured

    assert measured.startswith("No latency was measured: jetson-orin could not be reached. No accuracy was measured.")
    assert "were measured" not in measured


def test_a_plan_of_macs_for_a_device_out_of_reach():
    report = make_report(replace(make_plan(), target="jetson-orin"), finetune=make_finetune())

    assert report.budget_used.outcome == "met"
    assert report.verdict == ("latency not measured on jetson-orin, validation accuracy 99.00% after fine-tuning")
