"""A budget, as users write it."""

import re
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from catro_deploy.errors import BudgetError

__all__ = ["Budget"]


@dataclass(frozen=True)
class Budget:
    """What the pruned network may USE.

    A share of the original's ``flops`` (multiply-accumulates) or measured latency (``x``), or an absolute latency in
    ``us``.
    """

    amount: float
    unit: Literal["flops", "x", "us"] = "flops"

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read ``0.5x``, ``400us``, ``1.5ms`` or ``9.25%flops``.

        Raises:
            BudgetError: another form, or a share that is not above 0 and at most 1.
        """
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(x|us|μs|ms|%\s*flops)\s*", text.casefold())
        if match is None:
            raise BudgetError(
                f"The budget {text!r} cannot be read.",
                "Write what may be used: 0.5x (half of the original's latency), 400us, 1.5ms, or 50%flops (half of its "
                "multiply-accumulates).",
            )
        number, unit = Decimal(match[1]), match[2]
        if unit.endswith("flops"):
            budget = cls(float(number / 100), "flops")
        elif unit == "x":
            budget = cls(float(number), "x")
        else:
            budget = cls(float(number * 1000 if unit == "ms" else number), "us")
        if not 0 < budget.amount <= (sys.float_info.max if budget.unit == "us" else 1):
            raise BudgetError(
                f"The budget {text!r} is not above 0 and at most what the original uses.", "Try 0.5x or 50%flops."
            )
        return budget

    def limit(self, original: float) -> float:
        """The allowed amount, in the unit of the ``original`` amount."""
        return self.amount if self.unit == "us" else self.amount * original

    def __str__(self) -> str:
        amount = Decimal(repr(self.amount))  # exact, and written without an exponent: parse() reads it back
        if self.unit == "flops":
            return f"{(amount * 100).normalize():f}%flops"
        return f"{amount.normalize():f}{self.unit}"
