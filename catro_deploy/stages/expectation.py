"""Which variant of a pruning to try next: the divergence that is expected of each, given the others."""

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
    tried: Sequence[tuple[Changes, float]],
    candidates: Sequence[Changes],
    sizes: Sequence[str],
    screened: Sequence[tuple[Changes, float]] = (),
) -> list[float]:
    """The divergence expected of each of ``candidates``, in nats.

    Each changed setting is taken to multiply the divergence by a factor, found by least squares from those of ``tried``
    (the smallest factors where they do not determine them). A setting that was never tried has the factor 1. The
    factor of the input size is one per step: ``sizes`` are in falling order.

    With the divergences that were found for ``screened``, factors are those by which screening is wrong; a variant that
    was not screened is expected to be found as the others were, likewise by factors.
    """
    if not screened:
        return _by_factors(tried, candidates, sizes)

    def found(variants: Sequence[Changes]) -> list[float]:
        expected = zip(variants, _by_factors(screened, variants, sizes), strict=True)
        return [next((nats for changes, nats in screened if changes == one), nats) for one, nats in expected]

    by_screening = found([changes for changes, _ in tried])
    errors = [(changes, nats / max(by, LEAST_NATS)) for (changes, nats), by in zip(tried, by_screening, strict=True)]
    factors = _by_factors(errors, candidates, sizes)
    return [nats * factor for nats, factor in zip(found(candidates), factors, strict=True)]


def _by_factors(
    tried: Sequence[tuple[Changes, float]], candidates: Sequence[Changes], sizes: Sequence[str]
) -> list[float]:
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
