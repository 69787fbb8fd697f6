"""What the reports say about each step from the cut on."""

import pytest

from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.recovery import recovery_line, recovery_table, recovery_words
from tests.report.made import make_bench, make_plan, make_recovery, make_report, make_unlabelled, make_verify
from tests.report.pages import Page

UNTRAINED = {"finetuned": None}
PLAIN = {"reconstructed": None}


def report_of(**changes):
    verify = make_verify(recovery=make_recovery(**changes))
    return make_report(make_plan(), verify, make_bench())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "original 99.44%, after the cut 11.59%, reconstructed 92.75%, fine-tuned 99.12%"),
        (UNTRAINED, "original 99.44%, after the cut 11.59%, reconstructed 92.75%, without fine-tuning"),
        (PLAIN, "original 99.44%, after the cut 11.59%, fine-tuned 99.12%"),
    ],
    ids=["all", "no training", "no reconstruction"],
)
def test_the_steps_in_one_line(changes, expected):
    assert recovery_line(make_recovery(**changes)) == f"accuracy on 5,000 test images: {expected}"


def test_without_labels_the_steps_are_shown_by_agreement_and_the_original_is_left_out():
    recovery = make_recovery(metric="agreement", original=1.0)
    line = recovery_line(recovery)
    assert line.startswith("agreement with the original on 5,000 test images: after the cut 11.59%, ")
    assert recovery_table(recovery).head == ("Step", "Agreement with the original")


def test_both_reports_show_every_step():
    report = report_of()
    markdown, html = to_markdown(report), to_html(report)
    for name, share in (("Original", "99.44%"), ("After the cut", "11.59%"), ("Reconstructed", "92.75%")):
        assert f"| {name} | {share} |" in markdown
        assert name in Page(html).texts
    assert recovery_words(make_recovery()) in html
    bars = [attrs for attrs in Page(html).styled("rect", "pruned") if attrs["width"] == "11.590%"]
    assert len(bars) == 1


def test_without_labels_the_steps_are_of_agreement():
    verify = make_unlabelled(recovery=make_recovery(metric="agreement"))
    report = make_report(make_plan(), verify, make_bench())
    for page in (to_markdown(report), to_html(report)):
        assert "Agreement with the original after each step" in page
        assert "Accuracy after each step" not in page


def test_a_run_without_training_says_so_once_more():
    assert recovery_words(make_recovery(**UNTRAINED)).endswith("The network served is the one without fine-tuning.")
    assert "fine-tuned" not in recovery_words(make_recovery())


@pytest.mark.parametrize("verify", [make_verify(recovery=None), None], ids=["unknown", "none"])
def test_without_measured_steps_nothing_is_stated(verify):
    report = make_report(make_plan(), verify, make_bench() if verify else None)
    assert "Accuracy after each step" not in to_html(report) + to_markdown(report)
