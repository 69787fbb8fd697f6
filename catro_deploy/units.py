"""Amounts with a unit, as users write them (``400us``, ``2 MiB``, ``120s``), and numbers of things."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

__all__ = ["NUMBER", "Quantity", "amount_text", "counted", "read_amount"]

Quantity = Literal["us", "s", "bytes", "mJ"]
"""A kind of quantity, named by its unit: latencies, durations, bytes, energies."""

NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
"""A pattern of a number, without a sign or an exponent."""

# The units of each quantity, case-folded, with their scales. Both micro signs are accepted.
_SCALES: Mapping[Quantity, Mapping[str, Decimal]] = {
    "us": {unit: Decimal(scale) for unit, scale in (("us", 1), ("μs", 1), ("ms", 10**3))},
    "s": {"s": Decimal(1), "min": Decimal(60)},
    "bytes": {
        "b": Decimal(1),
        **{f"{prefix}b": Decimal(1000**power) for power, prefix in enumerate("kmg", 1)},
        **{f"{prefix}ib": Decimal(1024**power) for power, prefix in enumerate("kmg", 1)},
    },
    "mJ": {"uj": Decimal("0.001"), "μj": Decimal("0.001"), "mj": Decimal(1), "j": Decimal(1000)},
}
# The units in which amounts are written, largest first: the first that is not larger than the amount is used.
_WRITTEN: Mapping[Quantity, tuple[tuple[str, int], ...]] = {
    "us": (("us", 1),),
    "s": (("s", 1),),
    "bytes": (("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1)),
    "mJ": (("mJ", 1),),
}


def read_amount(text: str, quantity: Quantity) -> float | None:
    """Parse ``text`` as an amount of ``quantity``, in its unit; None if it is not one."""
    units = "|".join(_SCALES[quantity])
    match = re.fullmatch(rf"\s*({NUMBER})\s*({units})\s*", text.casefold())
    return None if match is None else float(Decimal(match[1]) * _SCALES[quantity][match[2]])


def amount_text(amount: float, quantity: Quantity) -> str:
    """Format an ``amount`` so that ``read_amount`` can parse it: exact, and without an exponent."""
    unit, size = next((one for one in _WRITTEN[quantity] if amount >= one[1]), _WRITTEN[quantity][-1])
    return f"{(Decimal(repr(float(amount))) / size).normalize():f}{unit}"


def counted(number: int, one: str, several: str = "") -> str:
    """``1 image``, ``1,200 images``; ``several`` is the plural if it is not ``one`` with an s."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"
