from dataclasses import replace

import pytest

from catro_deploy.records import FirstLook, Precisions
from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.verdict import validity, verdict
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


@pytest.mark.parametrize(
    ("speedup", "accuracies", "expected"),
    [
        (
            (1.84, 1.80, 1.88),
            (0.9944, 0.9912),
            "1.84x faster (95% CI 1.80 to 1.88), accuracy 99.44% -> 99.12% (-0.32 points)",
        ),
        (
            (0.87, 0.85, 0.89),
            (0.99, 0.99),
            "SLOWER: 0.87x the original's speed (95% CI 0.85 to 0.89), accuracy unchanged at 99.00%",
        ),
        (
            (1.01, 0.98, 1.04),
            (0.98, 0.99),
            "no difference beyond the noise: 1.01x the original's speed (95% CI 0.98 to 1.04), "
            "accuracy 98.00% -> 99.00% (+1.00 points)",
        ),
        (
            (1.05, 1.001, 1.10),
            (0.9999, 1.0),
            "1.050x faster (95% CI 1.001 to 1.100), accuracy 99.99% -> 100.00% (+0.01 points)",
        ),
        (
            (1.05, 1.0, 1.10),
            (0.9, 0.9),
            "no difference beyond the noise: 1.05x the original's speed (95% CI 1.00 to 1.10), "
            "accuracy unchanged at 90.00%",
        ),
    ],
)
def test_verdict(speedup, accuracies, expected):
    report = make_report(make_plan(), make_verify(*accuracies), make_bench(*speedup))

    assert report.verdict == verdict(report) == expected


def test_verdict_names_a_budget_of_macs_that_was_not_met():
    report = make_report(make_plan(pruned_macs=600), make_verify(), make_bench())

    assert report.verdict.endswith("; OVER BUDGET: 60.00% of the MACs where 50.00% were allowed")


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("0.5x", "; budget 0.5x met: 0.400x of the original's latency, measured"),
        ("0.39x", "; budget 0.39x missed, but within the noise: 0.400x of the original's latency, measured"),
        ("0.3x", "; OVER BUDGET: 0.400x of the original's latency, measured, where 0.3x was requested"),
        ("400us", "; budget 400us met: 400 us, measured"),
        ("0.3ms", "; OVER BUDGET: 400 us, measured, where 0.3ms was requested"),
    ],
)
def test_the_verdict_states_the_outcome_of_a_latency_budget(budget, words):
    # 1000 us before; 400 us after, with an interval of 320 to 500.
    bench = make_bench(2.5, 2.0, 3.125, original_us=1000)

    assert make_report(make_timed_plan(budget), make_verify(), bench).verdict.endswith(words)


def test_verdict_without_measurement_is_an_estimate():
    report = make_report(make_estimate(), finetune=make_finetune())

    assert report.verdict == (
        "not measured on jetson-orin: estimate 0.480x of the original's latency (1.00 ms -> 480 us) for a budget of "
        "0.5x, validation accuracy 99.00% after fine-tuning"
    )


def test_verdict_calls_predicted_what_a_profile_says():
    report = make_report(make_timed_plan(latency=make_latency(rounds=())))

    assert report.verdict.startswith("not measured on x86-cpu: predicted 0.480x of the original's latency")
    assert report.verdict.endswith("accuracy not measured")


def valid(plan=None, **verify):
    record = make_verify(**verify) if plan is None else None
    return validity(make_report(plan or make_plan(), record, make_bench() if record else None))


def test_the_warnings_begin_with_whether_the_figures_are_valid():
    of = make_verify().pruned
    assert valid() == "The figures are valid. Keep in mind:"
    assert valid(passed=False) == "The figures are valid, and miss the request. Keep in mind:"
    assert "NOT valid" in valid(pruned=replace(of, largest_logit_difference=1.0), tolerance=0.001)
    assert "NOT valid" in valid(pruned=replace(of, largest_logit_difference=None))
    in_integers = Precisions("fp32", "int8")
    far = replace(of, largest_logit_difference=1.0)
    assert "NOT valid" not in valid(pruned=far, tolerance=0.001, precision=in_integers)
    assert valid(make_estimate()) == f"The figures are incomplete: nothing was measured on {make_estimate().target}."


GUESSES = "the original is no better than guessing on validation images"


@pytest.mark.parametrize("verified", [True, False])
def test_figures_of_an_original_that_guesses_are_not_valid(verified):
    look = FirstLook(400, 0.5, None, None, ("It guesses. Likely causes: size.",), invalid=GUESSES)
    records = (make_verify(0.97, 0.97), make_bench(2.0, 1.9, 2.1)) if verified else (None, None)
    report = make_report(make_plan(first_look=look), *records, finetune=make_finetune())
    assert validity(report) == f"The figures are NOT valid: {GUESSES}."
    assert report.verdict.endswith(f"; figures NOT valid: {GUESSES}")
    for page in (to_html(report), to_markdown(report)):
        assert f"The figures are NOT valid: {GUESSES}." in page
        assert "It guesses. Likely causes: size." in page
    assert 'class="notice failed"' in to_html(report)


def test_nor_are_those_of_one_that_guesses_on_test_images():
    """Each of the two classes has half of the images."""
    report = make_report(make_plan(), make_verify(0.51, 0.5), make_bench(2.0, 1.9, 2.1), finetune=make_finetune())
    reason = "the original has 51.00% of the test images right, which is no better than guessing"
    assert validity(report) == f"The figures are NOT valid: {reason}."
    assert reason in to_html(report).replace("&nbsp;", " ")
    good = make_report(make_plan(), make_verify(0.9, 0.5), make_bench(2.0, 1.9, 2.1), finetune=make_finetune())
    assert "NOT valid" not in good.verdict + validity(good)
