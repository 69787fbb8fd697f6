"""Results on the screen, from a run folder's own files."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from catro_deploy.cli.show import RESULTS
from catro_deploy.report.build import build_report
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import save_plan
from tests.report.made import (
    make_bench,
    make_estimate,
    make_finetune,
    make_plan,
    make_reconstruction,
    make_recovery,
    make_shipped,
    make_timed_plan,
    make_untrained,
    make_verify,
)


def lines(stage, content):
    """What a terminal of 120 columns shows, without the blanks between a table's columns."""
    screen = io.StringIO()
    console = Console(width=120, highlight=False, file=screen)
    for part in RESULTS[stage].show(content, RunFolder(Path("a-run"))):
        console.print(part, markup=False) if isinstance(part, str) else console.print(part)
    return [" ".join(line.split()) for line in screen.getvalue().splitlines()]


def plan_of(plan, tmp_path):
    save_plan(plan, tmp_path / "plan.json")
    return json.loads((tmp_path / "plan.json").read_bytes())


def test_a_plan_of_macs_says_how_many_may_be_used(tmp_path):
    shown = lines("prune", plan_of(make_plan(), tmp_path))

    assert "layer0.conv1 16 4 25.0%" in shown
    assert "MACs 1,000 -> 490 (49.0%), of which 50%flops may be used; parameters 400 -> 100 (25.0%)" in shown


def test_a_plan_says_what_reconstruction_gave_back(tmp_path):
    shown = lines("prune", plan_of(make_plan(reconstruction=make_reconstruction()), tmp_path))
    assert shown[-1].startswith("reconstructed: KL from the original's answers 1.25 nats -> 0.0625 nats")


@pytest.mark.parametrize("stage", ["verify", "report"])
def test_each_step_is_told_in_one_line(stage):
    verify = make_verify(recovery=make_recovery())
    content = verify if stage == "verify" else build_report(make_plan(), verify, make_bench(), None, "a-run")
    steps = "original 99.44%, after the cut 11.59%, reconstructed 92.75%, fine-tuned 99.12%"
    assert f"accuracy on 5,000 test images: {steps}" in lines(stage, content)


def test_a_plan_that_knows_nothing_of_latency_and_depth_is_shown(tmp_path):
    plan = plan_of(make_plan(), tmp_path)
    del plan["latency"], plan["dropped"]

    assert lines("prune", plan)


def test_a_plan_by_latency_shows_its_rounds_and_its_cost_model(tmp_path):
    shown = lines("prune", plan_of(make_timed_plan(), tmp_path))

    assert "gone: the residual branches that end in gone.conv2" in shown
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


def test_a_plan_by_an_estimate_says_so(tmp_path):
    text = " ".join(lines("prune", plan_of(make_estimate(), tmp_path)))

    assert "latency, estimate: 1.00 ms -> 480 us (0.480x) for a budget of 0.5x; roofline of an Orin" in text
    assert "measured" not in text
    assert "cost model" not in text


@pytest.mark.parametrize(
    ("budget", "line"),
    [
        ("0.5x", "budget 0.500x, predicted 0.480x, measured 0.400x (95% CI 0.320x to 0.500x): met"),
        (
            "380us",
            "budget 380 us, predicted 480 us, measured 400 us (95% CI 320 us to 500 us): missed by no",
        ),
        ("300us", "budget 300 us, predicted 480 us, measured 400 us (95% CI 320 us to 500 us): OVER BUDGET"),
    ],
)
def test_a_report_says_what_became_of_a_budget_of_latency(budget, line):
    bench = make_bench(2.5, 2.0, 3.125, original_us=1000)

    shown = lines("report", build_report(make_timed_plan(budget), make_verify(), bench, make_finetune(), "a-run"))

    assert any(f"{one} ".startswith(line) for one in shown)
    assert "p50 ms 1.00 0.400 2.50x" in shown


def test_a_report_of_macs_says_nothing_of_a_budget_of_latency():
    shown = lines("report", build_report(make_plan(), make_verify(), make_bench(), make_finetune(), "a-run"))

    assert not [line for line in shown if line.startswith("budget")]
    assert "accuracy 99.44% 99.12% -0.32 points" in shown


@pytest.mark.parametrize(
    ("finetune", "accuracy"),
    [(make_finetune(), "validation accuracy, by PyTorch 99.00%"), (None, "accuracy not measured")],
)
def test_a_report_without_measurements_shows_estimates_by_that_name(finetune, accuracy):
    shown = lines("report", build_report(make_estimate(), None, None, finetune, "a-run"))

    assert accuracy in shown
    assert "latency, estimate 1.00 ms 480 us 2.08x" in shown
    assert not [line for line in shown if line.startswith("p50")]
    assert any(line.startswith("not measured on jetson-orin: estimate 0.480x") for line in shown)


def test_a_fine_tuning_of_no_epochs_is_called_no_training():
    assert lines("finetune", make_untrained()) == ["No training: validation accuracy 41.00%, as pruned"]


def test_a_target_out_of_reach_ends_with_what_was_not_checked_and_the_originals_accuracy_by_pytorch():
    finetune, unchecked = make_finetune(original_validation_accuracy=0.995), "NOT CHECKED on jetson-orin: all"
    content = build_report(make_estimate(), None, None, finetune, "a-run", shipped=make_shipped(), unchecked=unchecked)
    shown = lines("report", content)
    assert "validation accuracy, by PyTorch 99.50% 99.00% -0.50 points" in shown
    assert shown.count(unchecked) == 1
    (report,) = [line for line in shown if line.startswith("Report: ")]
    assert shown.index(report) + 1 == shown.index(unchecked) == len(shown) - 5  # then the file, two lines of input ...
    assert shown[-1].startswith("outputs: 0 30 km/h, 1 ")


def test_a_precision_by_name_has_its_row_in_the_summary():
    """Where it is served, and where it is not."""
    one = {"score": 0.98, "us": 480.0, "ratio": 0.48, "ratio_ci95": [0.47, 0.49], "lost": ""}
    candidates = {"fp32": one | {"ratio": 0.6, "us": 600.0, "lost": "it takes 1.25 times as long as int8"}, "int8": one}
    quantize = {"asked": "int8", "shipped": "int8", "candidates": candidates, "lost": {}, "made": {}, "own": "fp32"}
    quantize |= {"judged_by": "accuracy", "judged_by_reason": "", "validation_images": 500, "least_score": 0.97}
    quantize |= {"original_validation_accuracy": 0.99}
    verify = make_verify(precision={"original": "fp32", "pruned": "int8"})
    shown = lines("report", build_report(make_plan(), verify, make_bench(), None, "a-run", None, None, quantize))
    assert "precision fp32 int8" in shown
    assert "int8 98.00% 480 us 0.480x served" in shown
    lost = {"int8": "no part of it in integers keeps what must be kept"}
    quantize |= {"shipped": "fp32", "candidates": {"fp32": candidates["fp32"]}, "lost": lost}
    shown = lines("report", build_report(make_plan(), make_verify(), make_bench(), None, "a-run", None, None, quantize))
    assert f"int8 {lost['int8']}" in shown
