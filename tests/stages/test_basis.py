import numpy as np
import pytest

from catro_deploy.stages.basis import basis_of

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
    assert basis.record["validation_images"] == 2000


def test_without_labels_the_originals_answers_count():
    basis = basis_of(logits(LABELS), np.full(2000, -1))
    assert (basis.measure, basis.original_accuracy) == ("agreement", None)
    assert basis.score(logits(with_wrong(500))) == 0.75
