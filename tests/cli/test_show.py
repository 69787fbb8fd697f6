"""Results in the terminal, from the files of a run folder."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from catro_deploy.cli.results import RESULTS
from catro_deploy.records import Precisions
from catro_deploy.records.verify import ByRuntime, OtherRuntime
from catro_deploy.runs.folder import RunFolder
from tests.report.made import (
    make_agreement,
    make_bench,
    make_candidate,
    make_estimate,
    make_finetune,
    make_plan,
    make_quantize,
    make_reconstruction,
    make_recovery,
    make_report,
    make_shipped,
    make_timed_plan,
    make_untrained,
    make_verify,
)


def lines(stage, content):
    """The lines in a terminal of 120 columns, with runs of spaces between table columns collapsed."""
    screen = io.StringIO()
    console = Console(width=120, highlight=False, file=screen)
    for part in RESULTS[stage].show(content, RunFolder(Path("a-run"))):
        console.print(part, markup=False) if isinstance(part, str) else console.print(part)
    return [" ".join(line.split()) for line in screen.getvalue().splitlines()]


def test_a_plan_of_macs_says_how_many_may_be_used():
    shown = lines("prune", make_plan())

    assert "layer0.conv1 16 4 25.0%" in shown
    assert "MACs 1,000 -> 490 (49.0%), budget 50%flops; parameters 400 -> 100 (25.0%)" in shown


def test_a_plan_says_what_reconstruction_gave_back():
    shown = lines("prune", make_plan(reconstruction=make_reconstruction()))
    assert shown[-1].startswith("reconstructed: KL from the original's outputs 1.25 nats -> 0.0625 nats")


def test_the_speedup_has_the_same_digits_in_the_table_and_the_verdict():
    shown = lines("report", make_report(make_plan(), make_verify(), make_bench(1.0052, 1.0038, 1.0061)))
    (row,) = [line for line in shown if line.startswith("p50 ms")]
    assert row.endswith(" 1.005x")
    assert any(line.startswith("1.005x faster (95% CI 1.004 to 1.006)") for line in shown)


def test_a_comparison_in_onnxruntime_is_named_by_its_precision():
    """The row above it is of the served network, which may be in int8."""
    alone = ByRuntime(accuracy=0.9375, agreement=1.0, largest_logit_difference=1e-5)
    verify = replace(make_verify(), onnxruntime=OtherRuntime("onnxruntime 1.32.0", alone, alone))
    shown = lines("verify", verify)
    assert "pruned, float32 in onnxruntime 1.32.0 here 93.75% 100.00% 1.0e-05" in shown


@pytest.mark.parametrize("stage", ["verify", "report"])
def test_each_step_is_reported_in_one_line(stage):
    verify = make_verify(recovery=make_recovery())
    content = verify if stage == "verify" else make_report(make_plan(), verify, make_bench())
    steps = "original 99.44%, after the cut 11.59%, reconstructed 92.75%, fine-tuned 99.12%"
    assert f"accuracy on 5,000 test images: {steps}" in lines(stage, content)


def test_a_report_of_a_loss_advises_a_search():
    verify = make_verify(agreement_with_original=make_agreement(accuracy_change_ci95=(-2.0, -0.1)))
    shown = lines("report", make_report(make_timed_plan(), verify, make_bench()))
    assert len([line for line in shown if line.startswith("Accuracy fell. Add --search")]) == 1


def test_a_plan_by_latency_shows_its_rounds_and_its_cost_model():
    shown = lines("prune", make_timed_plan())

    assert "removed: the residual branches that end in gone.conv2" in shown
    assert "MACs 1,000 -> 490 (49.0%); parameters 400 -> 100 (25.0%)" in shown
    assert "1 490 us 530 us 1.02 ms 0.520x 0.510 to 0.530" in shown
    assert "2 480 us 495 us 1.01 ms 0.490x 0.480 to 0.500 taken" in shown
    assert "6 layers have widths that were not measured." in shown
    text = " ".join(shown)
    assert "cost model on 40 networks held out: 90.0% within 5%, 97.5% within 10%, RMSPE 3.1%, Spearman 0.950" in text
    assert (
        "latency, predicted: 1.00 ms -> 480 us (0.480x) for a budget of 0.5x; latency profile of 2026-11-20: 363 "
        "networks" in text
    )


def test_a_plan_by_an_estimate_says_so():
    text = " ".join(lines("prune", make_estimate()))

    assert "latency, estimate: 1.00 ms -> 480 us (0.480x) for a budget of 0.5x; roofline of an Orin" in text
    assert "measured" not in text
    assert "cost model" not in text


@pytest.mark.parametrize(
    ("budget", "line"),
    [
        ("0.5x", "budget 0.500x, predicted 0.480x, measured 0.400x (95% CI 0.320x to 0.500x): met"),
        (
            "380us",
            "budget 380 us, predicted 480 us, measured 400 us (95% CI 320 us to 500 us): missed, but",
        ),
        ("300us", "budget 300 us, predicted 480 us, measured 400 us (95% CI 320 us to 500 us): OVER BUDGET"),
    ],
)
def test_a_report_states_the_outcome_of_a_latency_budget(budget, line):
    bench = make_bench(2.5, 2.0, 3.125, original_us=1000)

    shown = lines("report", make_report(make_timed_plan(budget), make_verify(), bench, finetune=make_finetune()))

    assert any(f"{one} ".startswith(line) for one in shown)
    assert "p50 ms 1.00 0.400 2.50x" in shown


def test_a_report_of_macs_says_nothing_of_a_budget_of_latency():
    shown = lines("report", make_report(make_plan(), make_verify(), make_bench(), finetune=make_finetune()))

    assert not [line for line in shown if line.startswith("budget")]
    assert "accuracy 99.44% 99.12% -0.32 points" in shown


@pytest.mark.parametrize(
    ("finetune", "accuracy"),
    [(make_finetune(), "validation accuracy, by PyTorch 99.00%"), (None, "accuracy not measured")],
)
def test_a_report_without_measurements_shows_estimates_by_that_name(finetune, accuracy):
    shown = lines("report", make_report(make_estimate(), finetune=finetune))

    assert accuracy in shown
    assert "latency, estimate 1.00 ms 480 us 2.08x" in shown
    assert not [line for line in shown if line.startswith("p50")]
    assert any(line.startswith("not measured on jetson-orin: estimate 0.480x") for line in shown)


def test_a_fine_tuning_of_no_epochs_is_called_no_training():
    assert lines("finetune", make_untrained()) == ["No training: validation accuracy 41.00%, as pruned"]


def test_a_target_out_of_reach_ends_with_what_was_not_checked_and_the_originals_accuracy_by_pytorch():
    finetune, unchecked = make_finetune(original_validation_accuracy=0.995), "NOT CHECKED on jetson-orin: all"
    content = make_report(make_estimate(), finetune=finetune, shipped=make_shipped(), unchecked=unchecked)
    shown = lines("report", content)
    assert "validation accuracy, by PyTorch 99.50% 99.00% -0.50 points" in shown
    assert shown.count(unchecked) == 1
    (report,) = [line for line in shown if line.startswith("Report: ")]
    assert shown.index(report) + 1 == shown.index(unchecked) == len(shown) - 5  # then the file, two lines of input ...
    assert shown[-1].startswith("outputs: 0 30 km/h, 1 ")


def test_a_precision_by_name_has_its_row_in_the_summary():
    """With the precision served, and with it not served."""
    quantize = make_quantize()
    verify = make_verify(precision=Precisions("fp32", "int8"))
    shown = lines("report", make_report(make_plan(), verify, make_bench(), quantize=quantize))
    assert "precision fp32 int8" in shown
    assert "int8 98.00% 480 us 0.480x served" in shown
    assert "fp32 98.00% 600 us 0.600x it takes 1.25 times as long as int8" in shown
    lost = {"int8": "no part of it can be quantised within the limits"}
    quantize = make_quantize(shipped="fp32", candidates={"fp32": make_candidate(ratio=0.6)}, lost=lost)
    shown = lines("report", make_report(make_plan(), make_verify(), make_bench(), quantize=quantize))
    assert f"int8 {lost['int8']}" in shown
