import math

import numpy as np
import pytest

from catro_deploy.statistics.agreement import accuracy_of, agreement_of, mean_confidence, mean_kl_nats, predictions_of


def logits(*rows):
    return np.array(rows, dtype=np.float32)


def of_shares(*rows):
    """Logits whose softmax is ``rows``."""
    return np.log(np.array(rows)).astype(np.float32)


def test_a_logit_that_is_not_finite_gives_no_prediction_and_is_never_right():
    given = logits([1, 2], [np.nan, 0], [np.inf, 0], [3, 0])
    assert predictions_of(given).tolist() == [1, -1, -1, 0]
    assert accuracy_of(given, np.array([1, 0, 0, 1])) == 1 / 4
    assert accuracy_of(given, predictions_of(given)) == 2 / 4  # two missing predictions do not agree


def test_divergence_by_hand():
    """KL((1/2, 1/2) || (3/4, 1/4)) = ln(2 / sqrt(3)), and KL((3/4, 1/4) || (1/2, 1/2)) = 3/4 ln 3 - ln 2."""
    even, uneven = of_shares([0.5, 0.5]), of_shares([0.75, 0.25])
    assert mean_kl_nats(even, uneven) == pytest.approx(math.log(2 / math.sqrt(3)), rel=1e-6)
    assert mean_kl_nats(uneven, even) == pytest.approx(0.75 * math.log(3) - math.log(2), rel=1e-6)
    both = mean_kl_nats(np.concatenate([even, even]), np.concatenate([uneven, even]))
    assert both == pytest.approx(math.log(2 / math.sqrt(3)) / 2, rel=1e-6)


def test_logits_that_differ_by_a_constant_do_not_diverge():
    given = logits([1, 2, 3], [0, 5, -2])
    assert mean_kl_nats(given, given) == 0
    assert mean_kl_nats(given, given + 100) == pytest.approx(0, abs=1e-12)


def test_probabilities_that_round_to_zero_are_no_trouble():
    """If one is certain of class 0 and the other of class 1, the divergence is the distance of the other's logits."""
    certain, opposite = logits([2000, 0]), logits([0, 3000])
    assert mean_kl_nats(certain, opposite) == 3000
    assert mean_kl_nats(logits([3e38, -3e38]), logits([3e38, -3e38])) == 0


def test_of_what_is_not_finite_there_is_no_divergence():
    assert mean_kl_nats(logits([0, 0]), logits([0, np.nan])) is None
    assert mean_kl_nats(logits([0, np.inf]), logits([0, 0])) is None


def test_agreement_is_the_share_of_equal_predictions():
    reference = logits([2, 1], [2, 1], [0, 1], [0, 1])
    other = logits([3, 1], [1, 2], [0, 9], [0, np.nan])
    found = agreement_of(reference, other)
    assert (found.share, found.mean_kl_nats) == (0.5, None)
    assert agreement_of(reference, reference * 2).share == 1


def test_confidence_is_the_mean_of_the_largest_shares():
    assert mean_confidence(of_shares([0.7, 0.3], [0.1, 0.9])) == pytest.approx(0.8)
    assert mean_confidence(logits([5, 5], [-3, -3])) == 0.5
