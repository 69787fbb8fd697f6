import json
from dataclasses import asdict

import pytest

from catro_deploy.records import Speedup
from catro_deploy.records.figures import ClassFigures, MacsShare, Pair
from catro_deploy.records.files import content_of, record_of, record_text
from catro_deploy.records.report import Report
from tests.report.made import (
    CLASSES,
    make_bench,
    make_finetune,
    make_plan,
    make_quantize,
    make_report,
    make_samples,
    make_timed_plan,
    make_verify,
)


def test_report_holds_the_records_figures_in_the_units_that_it_promises():
    report = make_report(make_plan(), make_verify(), make_bench(), finetune=make_finetune())

    assert report.target == "x86-cpu"
    assert report.classes == CLASSES
    assert report.budget == "50%flops"
    assert report.macs_share == MacsShare(used=0.49, budget=0.5)
    assert asdict(report.original) == {
        "accuracy": 0.9944,
        "accuracy_ci95": pytest.approx((0.99192, 0.99612), abs=1e-5),
        "macs": 1000,
        "params": 400,
        "latency_ms": {"p50": 1.84, "p90": 1.84, "p99": 1.89, "mean": pytest.approx(1.8454)},
        "latency_cv": 0.05,
        "calls": 100,
    }
    assert report.pruned.accuracy == 0.9912
    assert report.pruned.macs == 490
    assert report.pruned.params == 100
    assert report.pruned.latency_ms.p50 == pytest.approx(1.0)
    assert report.pruned.latency_ms.p99 == pytest.approx(1.05)
    assert report.speedup == Speedup(1.84, (1.80, 1.88))
    assert report.accuracy_drop_points == pytest.approx(0.32)
    assert report.environment == make_bench().environment
    assert report.verdict == "1.84x faster (95% CI 1.80 to 1.88), accuracy 99.44% -> 99.12% (-0.32 points)"
    assert report.warnings == ("Other processes kept 0.9 of 2 cores busy.",)


def test_report_lists_classes_groups_and_fine_tuning():
    report = make_report(make_plan(), make_verify(), make_bench(), finetune=make_finetune())

    assert report.per_class[0] == ClassFigures("30 km/h", 2500, original=0.9944, pruned=0.9912)
    assert content_of(report)["groups"] == [
        {
            "name": "layer0.conv1",
            "layers": ["layer0.conv1"],
            "width_before": 16,
            "width_after": 4,
            "trace_ratio": 0.125,
            "rounds": 3,
            "fixed": "",
            "kept": [0, 1, 2, 3],
        },
        {
            "name": "fc",
            "layers": ["fc"],
            "width_before": 2,
            "width_after": 2,
            "trace_ratio": None,
            "rounds": None,
            "fixed": "the outputs",
            "kept": [0, 1],
        },
    ]
    assert report.finetune == make_finetune()
    assert report.settings["d_min"] == 3
    assert report.input.mean == (0.5, 0.25, 0.125)


def test_report_is_plain_json():
    report = make_report(make_plan(), make_verify(), make_bench(), finetune=make_finetune())

    assert json.loads(json.dumps(content_of(report), allow_nan=False)) == content_of(report)
    assert record_of(Report, record_text(report), "report.json", "") == report


def test_problems_of_verify_come_before_warnings_of_bench_and_absent_fine_tuning_is_stated():
    verify = make_verify(passed=False, problems=("Pruning cost too much.",), warnings=("Copied images.",))

    report = make_report(make_plan(), verify, make_bench())

    assert report.warnings == (
        "Pruning cost too much.",
        "Copied images.",
        "Other processes kept 0.9 of 2 cores busy.",
        "The pruned network was not fine-tuned: all figures are of the network right after pruning.",
    )
    assert report.verdict.endswith("; verification FAILED")


def test_a_precision_that_is_not_served_is_named_with_what_the_prediction_is_of():
    rejected = make_quantize(shipped="fp32", lost={"int8": "it takes 1.10 times as long as fp32"})
    said = "int8 was requested and is not served: it takes 1.10 times as long as fp32."
    (timed,) = [one for one in make_report(make_timed_plan(), quantize=rejected).warnings if one.startswith(said)]
    assert timed.endswith("prune again with --precision fp32 to use the whole budget.")
    assert said in make_report(make_plan(), quantize=rejected).warnings  # its budget is of multiply-accumulates


def test_histogram_counts_every_call_once():
    histogram = make_report(make_plan(), make_verify(), make_bench()).latency_histogram

    # The axis ends 3% after the original's slowest call, 2340 us, so nothing lies beyond it.
    assert sum(histogram.original) == sum(histogram.pruned) == 100
    assert histogram.beyond == Pair(original=0, pruned=0)
    assert histogram.low_ms < 0.99
    assert histogram.high_ms > 2.34


def test_histogram_leaves_out_the_slowest_of_many_calls_and_says_how_many():
    bench = make_bench(original=make_samples([1000.0] * 999 + [90_000.0]), pruned=make_samples([500.0] * 1000))

    histogram = make_report(make_plan(), make_verify(), bench).latency_histogram

    assert histogram.beyond == Pair(original=1, pruned=0)
    assert histogram.high_ms < 2


@pytest.mark.parametrize("calls", [10, 100, 1000])
def test_histogram_is_not_squeezed_by_few_slow_calls(calls):
    usual = [900.0 + 100 * call / calls for call in range(calls)]
    disturbed = max(1, calls // 7)
    slow = make_samples([*usual[:-disturbed], *[9000.0] * disturbed])
    bench = make_bench(original=slow, pruned=make_samples([us / 2 for us in usual]))

    histogram = make_report(make_plan(), make_verify(), bench).latency_histogram

    assert histogram.beyond == Pair(original=disturbed, pruned=0)
    assert 1 < histogram.high_ms < 2.8


def test_histogram_of_calls_that_all_took_the_same_time():
    bench = make_bench(original=make_samples([800.0] * 10), pruned=make_samples([800.0] * 10))

    histogram = make_report(make_plan(), make_verify(), bench).latency_histogram

    assert sum(histogram.original) == 10


@pytest.mark.parametrize(("pruned_us", "begins_at_zero"), [(450.0, True), (700.0, False)])
def test_histogram_shows_half_of_the_latency_as_half(pruned_us, begins_at_zero):
    bench = make_bench(original=make_samples([1000.0] * 10), pruned=make_samples([pruned_us] * 10))

    histogram = make_report(make_plan(), make_verify(), bench).latency_histogram

    assert (histogram.low_ms == 0) == begins_at_zero


def test_warnings_of_a_further_target_name_it():
    report = make_report(
        make_plan(), make_verify(), make_bench(also={"my-board": make_bench(warnings=("It throttled.",))})
    )
    assert "my-board: It throttled." in report.warnings
