"""Amounts with a unit, as users write them: ``400us``, ``300kB``, ``2 MiB``, ``1.5mJ``, ``120s``."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

__all__ = ["NUMBER", "Quantity", "amount_text", "read_amount"]

Quantity = Literal["us", "s", "bytes", "mJ"]
"""What is counted, by the unit that it is counted in: latencies, durations, bytes, energies."""

NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
"""A pattern of a number, without a sign or an exponent."""

# Of each quantity, its units by what they are written as without regard to case. Both signs of micro are read.
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
# In what amounts are written: the largest unit of which there is one.
_WRITTEN: Mapping[Quantity, tuple[tuple[str, int], ...]] = {
    "us": (("us", 1),),
    "s": (("s", 1),),
    "bytes": (("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1)),
    "mJ": (("mJ", 1),),
}


def read_amount(text: str, quantity: Quantity) -> float | None:
    """The amount of ``quantity`` that ``text`` says, in its unit; None if it says none."""
    units = "|".join(_SCALES[quantity])
    match = re.fullmatch(rf"\s*({NUMBER})\s*({units})\s*", text.casefold())
    return None if match is None else float(Decimal(match[1]) * _SCALES[quantity][match[2]])


def amount_text(amount: float, quantity: Quantity) -> str:
    """An ``amount`` as ``read_amount`` reads it: exact, and without an exponent."""
    unit, size = next((one for one in _WRITTEN[quantity] if amount >= one[1]), _WRITTEN[quantity][-1])
    return f"{(Decimal(repr(float(amount))) / size).normalize():f}{unit}"
