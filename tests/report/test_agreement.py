import re
from dataclasses import replace

import pytest

from catro_deploy.records import ClassAgreement, PrunedAgreement
from catro_deploy.records.figures import AgreementFigures
from catro_deploy.report.agreement import agreement_chart, basis_warnings, is_far_above
from catro_deploy.report.front import front_line, front_table, front_words
from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.tables import summary_table
from tests.report.made import (
    make_agreement,
    make_bench,
    make_candidate,
    make_plan,
    make_quantize,
    make_report,
    make_search,
    make_unlabelled,
    make_verify,
)
from tests.report.pages import Page

SEEN = "the original has 99.95% of the validation images right, and was probably trained on them"
BY_AGREEMENT = {"metric": "agreement", "metric_reason": SEEN, "original_validation_accuracy": 0.9995}


def report(verify, search=None, quantize=None):
    return make_report(make_plan(), verify, make_bench(), search=search, quantize=quantize)


def test_without_labels_agreement_leads_and_nothing_is_called_an_accuracy():
    content = report(make_unlabelled())
    assert content.verdict == (
        "1.84x faster (95% CI 1.80 to 1.88), same prediction as the original on 98.20% of 5,000 test images "
        "without labels (accuracy not known)"
    )
    assert (content.labelled, content.accuracy_drop_points, content.per_class) == (False, None, ())
    page, text = to_html(content), to_markdown(content)
    said = re.sub(r"accuracy not known|this is not an accuracy", "", " ".join(Page(page).texts) + text)
    assert not re.findall(r".{30}accura.{10}", said, re.IGNORECASE)
    for shown in (page, text):
        assert "Agreement with the original by class" in shown
        assert "which predictions are right is not known" in shown
    assert "mean KL 0.0123 nats" in page
    assert "| 30 km/h | 5,000 | 98.20% |" in text


def test_the_rows_of_both_kinds_of_images():
    unlabelled, labelled = (
        [row[:3] for row in summary_table(report(verify)).rows[1:5]]
        for verify in (make_unlabelled(), make_verify(agreement_with_original=make_agreement()))
    )
    agreement = [
        ("Same prediction as the original", "", "98.20%"),
        ("Mean KL from the original's outputs", "", "0.0123 nats"),
    ]
    assert unlabelled[:2] == agreement
    # Wilson's intervals for 5,000 images.
    intervals = ("Accuracy, 95% CI", "99.19% to 99.61%", "98.82% to 99.34%")
    assert labelled == [("Accuracy", "99.44%", "99.12%"), intervals, *agreement]


def test_logits_that_are_not_finite_leave_a_report():
    broken = make_unlabelled(agreement_with_original=PrunedAgreement(0.0, None), passed=False)
    content = report(broken)
    assert "not finite" in to_markdown(content)
    assert "verification FAILED" in content.verdict
    Page(to_html(content))


def test_the_picture_has_a_dot_for_each_class():
    per_class = (ClassAgreement("a", 10, 0.8), ClassAgreement("b", 5, 1.0))
    chart = Page(agreement_chart(AgreementFigures(0.87, 0.01, per_class, ci95=None)))
    assert len(chart.styled("circle", "dot")) == 2
    assert "Least agreement: a, 80.00% of 10 images." in "".join(chart.texts)


def test_of_very_many_classes_the_picture_has_those_that_agree_least():
    per_class = tuple(ClassAgreement(f"class {number}", 10, number / 1000) for number in range(1000))
    chart = Page(agreement_chart(AgreementFigures(0.5, 0.01, per_class, ci95=None)))
    assert len(chart.styled("circle", "dot")) == 50
    words = "".join(chart.texts)
    assert "The 50 of 1,000 classes that agree least. " in words
    assert "class 49" in words
    assert "class 50" not in words


def test_a_choice_by_agreement_is_a_warning_and_is_compared_with_test_images():
    content = report(make_verify(), make_search(**BY_AGREEMENT), None)
    (warning,) = [one for one in content.warnings if "agreement" in one]
    assert warning == (
        f"The budget was chosen by agreement with the original, not by accuracy: {SEEN} "
        "(the original's accuracy on the test images is 99.44%)."
    )
    without = {"metric": "agreement", "metric_reason": "no labels", "original_validation_accuracy": None}
    assert basis_warnings(make_unlabelled(), make_search(**without), make_quantize(**without)) == []
    alone = {"asked": "fp32", "shipped": "fp32", "candidates": {"fp32": make_candidate()}}
    nothing_to_choose = make_quantize(**BY_AGREEMENT, **alone)
    assert basis_warnings(make_verify(), None, nothing_to_choose) == []


def test_validation_images_that_were_far_easier_than_test_images_are_a_warning():
    easy = make_search(original_validation_accuracy=0.998, validation_images=2000)
    (warning,) = basis_warnings(make_verify(before=0.95), easy, None)
    assert "its accuracy there is 99.80% (the original's accuracy on the test images is 95.00%)" in warning
    assert basis_warnings(make_verify(before=0.99), easy, None) == []


@pytest.mark.parametrize(
    ("validation", "images", "test", "far"),
    [
        (0.98, 10000, 0.95, True),  # 3 points; a standard error is sqrt(1.96e-6 + 9.5e-6) = 0.34 points
        (0.98, 10000, 0.971, False),  # less than a point
        (0.98, 100, 0.95, False),  # a standard error is sqrt(1.96e-4 + 9.5e-6) = 1.4 points
        (0.95, 10000, 0.98, False),
    ],
)
def test_far_above_is_beyond_chance(validation, images, test, far):
    assert is_far_above(validation, images, make_verify(before=test)) is far


def test_a_front_by_agreement_says_so():
    front = tuple(replace(one, agreement=None if one.speedup is None else 0.975) for one in make_search().front)
    search = make_search(front=front, **BY_AGREEMENT)
    assert "loses at most 0.5 points of agreement with the original" in front_line(search)
    assert SEEN in front_words(search)
    table = front_table(search)
    assert table.head[2] == "Agreement, validation images"
    assert table.rows[1][2] == "97.50%"
