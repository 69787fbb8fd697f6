"""What was probably meant by a name that does not exist."""

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "similar"]

ALIKE = 0.6


def similar(name: str, known: Iterable[str], most: int = 1, alike: float = ALIKE) -> list[str]:
    """Up to ``most`` of ``known`` that resemble ``name``, the best first; ``alike`` is difflib's ratio, 0 to 1."""
    return difflib.get_close_matches(name, list(known), n=most, cutoff=alike)


def did_you_mean(
    name: str, known: Iterable[str], *, otherwise: str = "", most: int = 1, alike: float = ALIKE, form: str = "{}"
) -> str:
    """``Did you mean ...?`` with what resembles ``name``, written in ``form``; ``otherwise`` if nothing does."""
    found = similar(name, known, most, alike)
    return f"Did you mean {' or '.join(map(form.format, found))}?" if found else otherwise
