"""Budgets as users write them: one, or several that must all be met."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from catro_deploy.errors import BudgetError
from catro_deploy.units import NUMBER, amount_text, read_amount

__all__ = ["MEDIAN", "Budget", "Budgets", "Use"]

Use = Literal["latency", "MACs", "size", "memory", "energy"]
"""What a budget limits: time, multiply-accumulates, file size, memory of simultaneous feature maps, energy."""

MEDIAN = 50
_FORM = re.compile(rf"\s*({NUMBER})\s*(x|%\s*flops)\s*")
_PERCENTILE = re.compile(r"(.*)@\s*p([0-9]{1,2})\s*")
_AMOUNTS: dict[str, Literal["us", "bytes", "mJ"]] = {
    "latency": "us",
    "size": "bytes",
    "memory": "bytes",
    "energy": "mJ",
}
_EXAMPLES = {
    "latency": "what may be used: 0.5x (half of the original's latency), 400us, 1.5ms, or 50%flops (half of its "
    "multiply-accumulates); 900us@p99 is for the 99th percentile instead of the median",
    "size": "the size of the file: 300kB, 1.5MiB, or 0.25x (a quarter of the original's)",
    "memory": "the memory of feature maps: 256KiB, 2MB, or 0.5x (half of the original's)",
    "energy": "the energy of an inference: 3mJ, or 0.5x (half of the original's)",
}


@dataclass(frozen=True)
class Budget:
    """What the pruned network may USE.

    ``amount`` is a share of the original's latency, size, memory or energy (``x``) or multiply-accumulates (``flops``),
    or an absolute number of microseconds, bytes or millijoules. Latency is taken at ``percentile``; 50 is the median.
    """

    amount: float
    unit: Literal["flops", "x", "us", "bytes", "mJ"] = "flops"
    of: Literal["latency", "size", "memory", "energy"] = "latency"
    percentile: int = MEDIAN

    @classmethod
    def parse(cls, text: str, of: Literal["latency", "size", "memory", "energy"] = "latency") -> "Budget":
        """Parse ``0.5x``, ``400us``, ``1.5ms``, ``900us@p99``, ``9.25%flops``; with other ``of``, ``300kB`` or ``3mJ``.

        Raises:
            BudgetError: ``text`` has another form, or is a share that is not above 0 and at most 1.
        """
        ranked = _PERCENTILE.fullmatch(text) if of == "latency" else None
        percentile = int(ranked[2]) if ranked else MEDIAN
        amount = ranked[1] if ranked else text
        share = _FORM.fullmatch(amount.casefold())
        quantity = _AMOUNTS[of]
        counted = read_amount(amount, quantity)
        if share is not None and share[2] == "x":
            budget = cls(float(share[1]), "x", of, percentile)
        elif share is not None and of == "latency" and not ranked:
            budget = cls(float(Decimal(share[1]) / 100), "flops")
        elif counted is not None:
            budget = cls(counted, quantity, of, percentile)
        else:
            raise BudgetError(f"The budget {text!r} cannot be read.", f"Write {_EXAMPLES[of]}.")
        if not 0 < budget.amount <= (1 if budget.is_share else sys.float_info.max):
            raise BudgetError(
                f"The budget {text!r} must be above 0 and at most what the original uses.", f"Write {_EXAMPLES[of]}."
            )
        if percentile < MEDIAN:
            raise BudgetError(f"The budget {text!r} is for a percentile below the median.", "Try @p90 or @p99.")
        return budget

    @property
    def is_share(self) -> bool:
        """Whether it is a share of what the original uses."""
        return self.unit in ("flops", "x")

    @property
    def use(self) -> Use:
        """What the budget limits."""
        return "MACs" if self.unit == "flops" else self.of

    @property
    def is_timed(self) -> bool:
        """Whether usage can only be measured on a device: time or energy."""
        return self.use in ("latency", "energy")

    def limit(self, original: float) -> float:
        """The allowed amount, in the unit of the ``original`` amount."""
        return self.amount * original if self.is_share else self.amount

    def __str__(self) -> str:
        amount = Decimal(repr(self.amount))  # exact, and written without an exponent: parse() reads it back
        if self.unit == "flops":
            return f"{(amount * 100).normalize():f}%flops"
        text = f"{amount.normalize():f}x" if self.unit == "x" else amount_text(self.amount, self.unit)
        return text if self.percentile == MEDIAN else f"{text}@p{self.percentile}"


@dataclass(frozen=True)
class Budgets:
    """Budgets of latency and of multiply-accumulates that must all be met: at least one, without duplicates."""

    parts: tuple[Budget, ...]

    @classmethod
    def parse(cls, text: str | Sequence[str]) -> "Budgets":
        """Parse ``0.5x``, ``0.5x, 900us@p99``, or a sequence of such texts.

        Raises:
            BudgetError: one of them cannot be read.
        """
        texts = [text] if isinstance(text, str) else text
        return cls(tuple(dict.fromkeys(Budget.parse(part) for one in texts for part in one.split(","))))

    @property
    def main(self) -> Budget:
        """The budget by which widths are chosen: the first latency budget, else the first. The others are limits."""
        return next((one for one in self.parts if one.use == "latency"), self.parts[0])

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))
