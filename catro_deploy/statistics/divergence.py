"""Divergence between two networks' outputs: a finer measure than counting the predictions that differ."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from catro_deploy.statistics.agreement import log_softmax, mean_kl_nats

__all__ = ["mean_change_cost_nats", "scaled_kl_nats"]

Floats = NDArray[np.float32]

LOG_SCALES = (-5.0, 5.0)
"""Logits are scaled by a factor between 1/148 and 148."""


def scaled_kl_nats(reference: Floats, logits: Floats) -> float | None:
    """The smallest ``mean_kl_nats`` when all ``logits`` are multiplied by one positive number; both (n, classes).

    A common scale changes the confidence, as training often does, but no prediction. None if a logit is not finite.
    """
    plain = mean_kl_nats(reference, logits)
    if plain is None:
        return None

    def scaled(log_scale: float) -> float:
        divergence = mean_kl_nats(reference, logits, float(np.exp(log_scale)))
        return np.inf if divergence is None else divergence

    found = minimize_scalar(scaled, bounds=LOG_SCALES, method="bounded", options={"xatol": 1e-4})
    return min(plain, float(found.fun))


def mean_change_cost_nats(reference: Floats) -> float:
    """The smallest divergence that changes a prediction of ``reference`` (n, classes), mean over the images.

    For the prediction to change, the probabilities p1 and p2 of the two most probable classes must at least become
    equal. The distribution nearest to p for which they are equal assigns m = (p1 + p2) / 2 to both, at
    KL = p1 ln(p1 / m) + p2 ln(p2 / m). This is between 0, where the reference is undecided, and ln 2, where it is
    certain.
    """
    if reference.shape[1] < 2:
        return 0.0
    pairs = np.sort(np.exp(log_softmax(reference)), axis=1)[:, -2:]
    middle = pairs.mean(axis=1, keepdims=True)
    positive = np.maximum(pairs, np.finfo(np.float64).tiny)  # 0 ln 0 is 0
    return float((pairs * np.log(positive / middle)).sum(axis=1).mean())
