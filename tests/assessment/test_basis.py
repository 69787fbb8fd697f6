import numpy as np
import pytest

from catro_deploy.assessment.basis import Basis, Limits, basis_of, resolution_warning, strictest

LABELS = np.arange(2000) % 2


def logits(predictions):
    """Logits that give the classes ``predictions``."""
    return np.eye(2, dtype=np.float32)[predictions]


def with_wrong(count):
    """Predictions that equal the labels, except for the first ``count``."""
    predictions = LABELS.copy()
    predictions[:count] = 1 - predictions[:count]
    return predictions


@pytest.mark.parametrize("wrong", [2, 5, 2000])
def test_labels_count_where_the_original_is_wrong_now_and_then(wrong):
    """With 2 of 2,000 wrong, the accuracy is 99.9%."""
    basis = basis_of(logits(with_wrong(wrong)), LABELS)
    assert (basis.metric, basis.reason, basis.original_accuracy) == ("accuracy", "", 1 - wrong / 2000)
    assert basis.score(logits(LABELS)) == 1


def test_an_original_that_is_nearly_always_right_was_probably_trained_on_the_images():
    given = with_wrong(1)
    basis = basis_of(logits(given), LABELS)
    assert basis.metric == "agreement"
    assert basis.original_accuracy == 0.9995
    assert basis.reason == "the original has 99.95% of the validation images right, and was probably trained on them"
    assert basis.score(logits(given)) == 1
    assert basis.score(logits(LABELS)) == 0.9995
    assert basis.record.validation_images == 2000


@pytest.mark.parametrize(
    ("images", "allowed", "metric"),
    [
        (45, 1.0, "agreement"),
        (45, 2.5, "accuracy"),
        (45, 0.0, "accuracy"),
        (45, None, "accuracy"),
        (100, 1.0, "accuracy"),
    ],
)
def test_where_one_image_is_more_than_may_be_lost_agreement_counts(images, allowed, metric):
    basis = basis_of(logits(with_wrong(3)[:images]), LABELS[:images], allowed)
    reason = "one of 45 validation images is 2.2 points, more than the 1 allowed"
    assert (basis.metric, basis.reason) == (metric, reason if metric == "agreement" else "")


@pytest.mark.parametrize(
    ("images", "allowed", "few"),
    [(45, 1.0, True), (380, 1.0, True), (381, 1.0, False), (45, 8.0, False), (9, 0.0, False)],
)
def test_images_that_are_too_few_for_a_loss_are_warned_of(images, allowed, few):
    assert bool(resolution_warning(images, allowed)) == few


def test_the_warning_says_what_one_image_is():
    """3.8415 / (45 + 3.8415) of the images may be lost without being seen."""
    words = resolution_warning(45, 1.0)
    assert words.startswith("45 validation images cannot resolve a loss of 1 point: one image is 2.2 points, and")
    assert "would reach 7.9." in words


def test_without_labels_the_originals_predictions_count():
    basis = basis_of(logits(LABELS), np.full(2000, -1))
    assert (basis.metric, basis.original_accuracy) == ("agreement", None)
    assert basis.score(logits(with_wrong(500))) == 0.75


def test_of_few_images_all_may_be_right_by_chance():
    few = basis_of(logits(LABELS[:45]), LABELS[:45], 1.0)
    assert few.reason == "one of 45 validation images is 2.2 points, more than the 1 allowed"


def test_few_images_bound_the_divergence_by_what_it_takes_to_change_predictions():
    """Logits 1 and 0 give shares of e / (1 + e) = 0.7311 and 0.2689; 0.7311 ln 1.4621 + 0.2689 ln 0.5379 = 0.1109."""
    few = basis_of(logits(with_wrong(3)[:45]), LABELS[:45], 1.0)
    assert few.change_cost_nats == pytest.approx(0.1109, abs=1e-4)
    limits = few.limits(1.0, 0.0, 1.0)
    assert limits.least_score == 0.99
    assert limits.largest_kl_nats == pytest.approx(0.001109, abs=1e-6)
    after = few.limits(0.97, 0.02, 0.5)
    assert (after.least_score, after.largest_kl_nats) == (0.965, pytest.approx(0.02 + 0.1109 / 200, abs=1e-6))
    unlabelled = basis_of(logits(LABELS[:45]), np.full(45, -1), 1.0)
    assert unlabelled.change_cost_nats == few.change_cost_nats
    for enough in (basis_of(logits(with_wrong(3)), LABELS, 1.0), basis_of(logits(LABELS), np.full(2000, -1), 1.0)):
        assert enough.limits(1.0, 0.0, 1.0) == Limits(0.99)


@pytest.mark.parametrize(
    ("score", "kl", "kept"),
    [
        (1.0, 0.0069, True),
        (1.0, 0.0071, False),
        (1.0, None, False),
        (44 / 45, 0.0069, True),  # one of 45 differs, which chance explains: up to 99.61% by Wilson
        (43 / 45, 0.0, False),  # two of 45 differ: up to 98.77%
    ],
)
def test_of_few_images_agreement_rules_out_what_is_sure_and_divergence_decides_the_rest(score, kl, kept):
    basis = Basis("agreement", LABELS[:45], 0.9, "few", change_cost_nats=0.7)
    assert basis.keeps(score, kl, Limits(0.99, 0.007)) == kept


@pytest.mark.parametrize(("score", "kept"), [(0.99, True), (0.9899, False)])
def test_of_many_images_the_score_decides_alone(score, kept):
    assert Basis("accuracy", LABELS, 1.0).keeps(score, None, Limits(0.99)) == kept


def test_the_strictest_limits_keep_both():
    assert strictest(Limits(0.9, 0.01), Limits(0.95, 0.02)) == Limits(0.95, 0.01)
    assert strictest(Limits(0.9), Limits(0.95)) == Limits(0.95)
