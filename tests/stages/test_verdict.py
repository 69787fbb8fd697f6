import numpy as np
import pytest

from catro_deploy.records import Accuracy, ClassAgreement, PrunedAgreement
from catro_deploy.report.wording import points
from catro_deploy.stages.verdict import compare, compare_with_original, tuning_advice, verdict_on

SAME = PrunedAgreement(1.0, 0.0)


def test_nan_logits_are_never_right_and_do_not_pass():
    """In PyTorch only, the logits of the last image are NaN: class 0 must not win by default."""
    by_runtime = np.array([[2, 1], [0, 3], [4, 0]], dtype=np.float32)
    by_torch = np.array([[2, 1], [0, 3], [np.nan, np.nan]], dtype=np.float32)
    found = compare(by_torch, by_runtime, np.array([0, 1, 0]), ("a", "b"))
    assert found.torch == pytest.approx(2 / 3)
    assert found.runtime == 1
    assert found.largest_logit_difference is None
    verdict = verdict_on(found, found, SAME, 1e-3, None)
    assert "not finite" in verdict.problems[0]


def test_compare_by_hand():
    by_torch = np.array([[2, 1], [0, 3], [1, 0], [0, 1]], dtype=np.float32)
    by_runtime = np.array([[2, 1], [0, 3], [1, 1.25], [0, 1]], dtype=np.float32)
    found = compare(by_torch, by_runtime, np.array([0, 1, 0, 0]), ("a", "b"))
    assert (found.torch, found.runtime, found.agreement, found.largest_logit_difference) == (0.75, 0.5, 0.75, 1.25)
    assert [(entry.name, entry.images, entry.torch, entry.runtime) for entry in found.per_class] == [
        ("a", 3, pytest.approx(2 / 3), pytest.approx(1 / 3)),
        ("b", 1, 1, 1),
    ]


@pytest.mark.parametrize(
    ("difference", "drop", "max_drop", "problems"),
    [
        (9e-4, 0.0, None, 0),
        (2e-3, 0.0, None, 2),
        (0, 0.02, None, 0),
        (0, 0.02, 1.0, 1),
        (0, -0.02, 0.0, 0),
        (0, 0.0, 0.0, 0),
    ],
)
def test_judge(difference, drop, max_drop, problems):
    original = Accuracy(0.9, 0.9, 1.0, difference, ())
    pruned = Accuracy(0.9, 0.9 - drop, 1.0, difference, ())
    verdict = verdict_on(original, pruned, SAME, 1e-3, max_drop)
    assert len(verdict.problems) == problems
    assert verdict.accuracy_drop_points == pytest.approx(100 * drop)


def test_the_loss_is_rounded_alike_in_the_problem_and_the_record():
    """738 and 711 of 800 images; 100 * (0.9225 - 0.88875) is 3.3749999999999947."""
    verdict = verdict_on(Accuracy(0.9225, 0.9225, 1.0, 0, ()), Accuracy(0.88875, 0.88875, 1.0, 0, ()), SAME, 1e-3, 1.0)
    assert verdict.problems == ("Pruning cost 3.38 points of accuracy; verify.max_drop allows 1.",)
    assert points(-verdict.accuracy_drop_points) == "-3.38"


def test_a_loss_of_an_int8_network_is_not_put_down_to_pruning_alone():
    original, pruned = Accuracy(0.92, 0.92, 1.0, 0, ()), Accuracy(0.92, 0.9, 1.0, 0.5, ())
    verdict = verdict_on(original, pruned, SAME, 1e-3, 1.0, ["pruned"])
    assert verdict.problems == ("Pruning and int8 cost 2.00 points of accuracy; verify.max_drop allows 1.",)


@pytest.mark.parametrize(
    ("epochs", "in_integers", "words"),
    [
        (0, False, "Allow more (--max-drop), or fine-tune the network (--epochs)."),
        (0, True, "or fine-tune the network (--epochs), or serve it in floating point (--precision fp32)."),
        (3, False, "another --batch-size, more --epochs."),
    ],
)
def test_advice_fits_what_was_done(epochs, in_integers, words):
    assert tuning_advice(epochs, in_integers=in_integers).endswith(words)


def test_without_labels_there_is_no_accuracy_to_compare():
    logits = np.array([[2, 1], [0, 3]], dtype=np.float32)
    found = compare(logits, logits + 1, np.array([-1, -1]), ("a", "b"))
    assert found == Accuracy(None, None, 1.0, 1.0, ())


def test_agreement_by_class_goes_by_the_originals_predictions():
    original = np.array([[2, 1, 0], [2, 0, 0], [0, 3, 0]], dtype=np.float32)
    pruned = np.array([[3, 1, 0], [0, 3, 0], [0, 3, 0]], dtype=np.float32)
    found = compare_with_original(original, pruned, ("a", "b", "c"))
    assert found.share == pytest.approx(2 / 3)
    assert found.per_class == (ClassAgreement("a", 2, 0.5), ClassAgreement("b", 1, 1.0))


@pytest.mark.parametrize(("share", "max_drop", "problems"), [(0.99, 1.0, 0), (0.98, 1.0, 1), (0.5, None, 0)])
def test_without_labels_the_loss_allowed_is_one_of_agreement(share, max_drop, problems):
    unknown = Accuracy(None, None, 1.0, 0.0, ())
    verdict = verdict_on(unknown, unknown, PrunedAgreement(share, 0.1), 1e-3, max_drop)
    assert len(verdict.problems) == problems
    assert verdict.accuracy_drop_points is None
