"""Suggestions for a name that does not exist."""

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "similar"]

ALIKE = 0.6


def similar(name: str, known: Iterable[str], most: int = 1, alike: float = ALIKE) -> list[str]:
    """Up to ``most`` of ``known`` that resemble ``name``, best first; ties keep the order of ``known``.

    ``alike`` is the minimum ratio of difflib, 0 to 1.
    """
    ratios = {one: difflib.SequenceMatcher(None, one, name).ratio() for one in known}
    return sorted((one for one in ratios if ratios[one] >= alike), key=lambda one: -ratios[one])[:most]


def did_you_mean(
    name: str, known: Iterable[str], *, otherwise: str = "", most: int = 1, alike: float = ALIKE, form: str = "{}"
) -> str:
    """``Did you mean ...?`` with names similar to ``name``, in ``form``; ``otherwise`` if there are none."""
    found = similar(name, known, most, alike)
    return f"Did you mean {' or '.join(map(form.format, found))}?" if found else otherwise
