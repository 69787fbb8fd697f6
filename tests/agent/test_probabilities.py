"""Logarithms of probabilities in place of logits."""

import numpy as np
import torch

from catro_deploy.agent.probabilities import log_of, log_softmax

LOGITS = np.array([[1.0, 2.0, 3.0], [0.0, 50.0, -200.0], [1000.0, 0.0, 999.0]], np.float32)


def test_both_ways_agree_and_are_finite():
    probabilities = torch.from_numpy(LOGITS).softmax(1).numpy()
    found = log_of(probabilities)
    np.testing.assert_allclose(found, log_softmax(LOGITS), rtol=1e-5, atol=1e-6)
    expected = np.maximum(torch.from_numpy(LOGITS).log_softmax(1).numpy(), np.log(1e-30))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.isfinite(found).all()
    assert found.dtype == log_softmax(LOGITS).dtype == np.float32


def test_what_is_not_finite_stays_so():
    assert np.isnan(log_of(np.array([[np.nan, 0.5]], np.float32))[0, 0])
    assert np.isnan(log_softmax(np.array([[np.nan, 0.5]], np.float32))).all()
