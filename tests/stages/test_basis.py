import numpy as np
import pytest

from catro_deploy.stages.basis import basis_of, resolution_warning

LABELS = np.arange(2000) % 2


def logits(answers):
    """Logits that give the classes ``answers``."""
    return np.eye(2, dtype=np.float32)[answers]


def with_wrong(count):
    """The labels, ``count`` of them wrong."""
    answers = LABELS.copy()
    answers[:count] = 1 - answers[:count]
    return answers


@pytest.mark.parametrize("wrong", [2, 5, 2000])
def test_labels_count_where_the_original_is_wrong_now_and_then(wrong):
    """2 of 2,000 wrong are 99.9%."""
    basis = basis_of(logits(with_wrong(wrong)), LABELS)
    assert (basis.measure, basis.reason, basis.original_accuracy) == ("accuracy", "", 1 - wrong / 2000)
    assert basis.score(logits(LABELS)) == 1


def test_an_original_that_is_nearly_always_right_was_probably_trained_on_the_images():
    given = with_wrong(1)
    basis = basis_of(logits(given), LABELS)
    assert basis.measure == "agreement"
    assert basis.original_accuracy == 0.9995
    assert basis.reason == "the original has 99.95% of the validation images right, and was probably trained on them"
    assert basis.score(logits(given)) == 1
    assert basis.score(logits(LABELS)) == 0.9995
    assert basis.record.validation_images == 2000


@pytest.mark.parametrize(
    ("images", "allowed", "measure"),
    [
        (45, 1.0, "agreement"),
        (45, 2.5, "accuracy"),
        (45, 0.0, "accuracy"),
        (45, None, "accuracy"),
        (100, 1.0, "accuracy"),
    ],
)
def test_where_one_image_is_more_than_may_be_lost_agreement_counts(images, allowed, measure):
    basis = basis_of(logits(with_wrong(3)[:images]), LABELS[:images], allowed)
    reason = "one of 45 validation images is 2.2 points, more than the 1 allowed"
    assert (basis.measure, basis.reason) == (measure, reason if measure == "agreement" else "")


@pytest.mark.parametrize(
    ("images", "allowed", "few"),
    [(45, 1.0, True), (380, 1.0, True), (381, 1.0, False), (45, 8.0, False), (9, 0.0, False)],
)
def test_images_that_are_too_few_for_a_loss_are_warned_of(images, allowed, few):
    assert bool(resolution_warning(images, allowed)) == few


def test_the_warning_says_what_one_image_is():
    """3.8415 / (45 + 3.8415) of the images may be lost unseen."""
    words = resolution_warning(45, 1.0)
    assert words.startswith("45 validation images cannot resolve a loss of 1 points: one image is 2.2 points, and")
    assert "would reach 7.9." in words


def test_without_labels_the_originals_answers_count():
    basis = basis_of(logits(LABELS), np.full(2000, -1))
    assert (basis.measure, basis.original_accuracy) == ("agreement", None)
    assert basis.score(logits(with_wrong(500))) == 0.75
