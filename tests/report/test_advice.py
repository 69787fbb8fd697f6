"""Advice is given only where accuracy fell significantly, and what is advised has not been tried."""

import pytest

from catro_deploy.records import Precisions
from catro_deploy.report.advice import advice_on
from tests.report.made import (
    make_agreement,
    make_bench,
    make_estimate,
    make_plan,
    make_quantize,
    make_report,
    make_search,
    make_timed_plan,
    make_unlabelled,
    make_variants,
    make_verify,
)


def verify(change=(-2.0, -0.1), precision="fp32"):
    agreement = make_agreement(accuracy_change_ci95=change)
    return make_verify(agreement_with_original=agreement, precision=Precisions("fp32", precision))


def test_after_a_loss_a_search_is_advised():
    advice = advice_on(make_report(make_timed_plan(), verify(), make_bench()))
    assert "--search" in advice
    assert "int8" in advice


def test_int8_is_no_example_once_it_was_rejected():
    rejected = make_quantize(shipped="fp32", lost={"int8": "it takes 1.10 times as long as fp32"})
    advice = advice_on(make_report(make_timed_plan(), verify(), make_bench(), quantize=rejected))
    assert advice == "Accuracy fell. Add --search to compare other settings at the same latency."


@pytest.mark.parametrize("change", [(-2.0, 0.0), (0.1, 0.3), None])
def test_without_a_significant_loss_nothing_is_advised(change):
    assert not advice_on(make_report(make_timed_plan(), verify(change), make_bench()))


@pytest.mark.parametrize(
    ("plan", "verified", "others"),
    [
        (make_timed_plan(), verify(precision="int8"), {}),
        (make_timed_plan(), verify(), {"variants": make_variants()}),
        (make_timed_plan(), verify(), {"search": make_search()}),
        (make_plan(), verify(), {}),  # its budget is of multiply-accumulates
        (make_estimate(), verify(), {}),
        (make_timed_plan(), make_unlabelled(), {}),
        (make_timed_plan(), None, {}),
    ],
)
def test_what_was_tried_or_is_impossible_is_not_advised(plan, verified, others):
    assert not advice_on(make_report(plan, verified, make_bench(), **others))
