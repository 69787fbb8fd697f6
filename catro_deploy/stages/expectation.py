"""Which variant of a pruning to try next: the divergence that is expected of each, given those that were tried."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from catro_deploy.records.variants import INPUT_SIZE

__all__ = ["expected_kl_nats"]

Changes = Mapping[str, str]
Setting = tuple[str, str]

LEAST_NATS = 1e-6
"""Divergences below this are rounding, and their logarithm would dominate the fit."""


def expected_kl_nats(
    tried: Sequence[tuple[Changes, float]], candidates: Sequence[Changes], sizes: Sequence[str]
) -> list[float]:
    """The divergence expected of each of ``candidates``, in nats.

    Each changed setting is taken to multiply the divergence by a factor, found by least squares from those of ``tried``
    (the smallest factors where they do not determine them). A setting that was never tried has the factor 1. The
    factor of the input size is one per step: ``sizes`` are in falling order.
    """
    known = sorted({setting for changes, _ in tried for setting in _settings(changes, sizes)})
    steps = _steps([changes for changes, _ in tried], known, sizes)
    logs = [math.log(max(kl_nats, LEAST_NATS)) for _, kl_nats in tried]
    factors = np.linalg.lstsq(steps, np.array(logs), rcond=None)[0]
    return [float(one) for one in np.exp(_steps(candidates, known, sizes) @ factors)]


def _steps(variants: Sequence[Changes], known: Sequence[Setting], sizes: Sequence[str]) -> NDArray[np.float64]:
    """How often each known setting's factor applies; shape (variants, 1 + settings), ones in the first column."""
    rows = [_settings(changes, sizes) for changes in variants]
    return np.array([[1, *(row.get(setting, 0) for setting in known)] for row in rows], np.float64)


def _settings(changes: Changes, sizes: Sequence[str]) -> dict[Setting, int]:
    """The changed settings, and how many steps each is from the unchanged value."""
    return {
        (place, "" if place == INPUT_SIZE else value): 1 + sizes.index(value) if place == INPUT_SIZE else 1
        for place, value in changes.items()
    }
