import numpy as np
import pytest

from catro_deploy.assessment.keeping import choose

LABELS = np.arange(1000) % 2


def logits(predictions, sure=2.0):
    return (sure * np.eye(2)[predictions]).astype(np.float32)


def with_wrong(first, last):
    """Predictions that equal the labels, except from ``first`` to ``last``."""
    predictions = LABELS.copy()
    predictions[first:last] = 1 - predictions[first:last]
    return predictions


ORIGINAL = logits(with_wrong(0, 50))


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (logits(with_wrong(0, 90)), logits(with_wrong(0, 60), 9.0), "finetuned"),  # a sure gain, although further away
        (logits(with_wrong(0, 60), 9.0), logits(with_wrong(0, 90)), "pruned"),  # a sure loss, although nearer
        (logits(with_wrong(0, 60)), logits(with_wrong(0, 60), 9.0), "pruned"),  # equally accurate, further away
        (logits(with_wrong(0, 60), 9.0), logits(with_wrong(0, 60)), "finetuned"),
        (logits(with_wrong(0, 60), 9.0), logits(with_wrong(0, 61)), "finetuned"),  # one image worse, but nearer
        (logits(with_wrong(0, 61)), logits(with_wrong(0, 60), 9.0), "pruned"),  # one image better, but further away
        (logits(with_wrong(0, 60)), logits(with_wrong(0, 60)), "finetuned"),
        (logits(LABELS), np.full((1000, 2), np.nan, np.float32), "pruned"),
    ],
)
def test_the_better_network_is_kept(before, after, kept):
    choice = choose(ORIGINAL, before, after, LABELS)
    assert (choice.kept, choice.images) == (kept, 1000)


def test_the_scores_are_those_of_both_networks():
    choice = choose(ORIGINAL, logits(with_wrong(0, 60)), logits(with_wrong(0, 70)), LABELS)
    assert (choice.before.accuracy, choice.after.accuracy) == (0.94, 0.93)
    assert (choice.before.agreement, choice.after.agreement) == (0.99, 0.98)
    assert choice.before.mean_kl_nats < choice.after.mean_kl_nats


def test_on_images_that_the_original_was_trained_on_the_metric_is_agreement():
    """If the original is always right, labels and agreement coincide; without labels, agreement decides."""
    original = logits(LABELS)
    choice = choose(original, logits(with_wrong(0, 30)), logits(LABELS), LABELS)
    assert choice.kept == "finetuned"
    unlabelled = choose(logits(with_wrong(0, 30)), logits(with_wrong(0, 30)), logits(LABELS), np.full(1000, -1))
    assert unlabelled.kept == "pruned"
    assert unlabelled.after.accuracy is None
