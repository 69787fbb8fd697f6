"""``[search]``."""

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, field_validator

from catro_deploy.budget import Budgets
from catro_deploy.errors import BudgetError
from catro_deploy.settings.section import Section

__all__ = ["Knob", "SearchSettings"]

Knob = Literal["criterion", "worth", "depth", "precision", "input_size", "temperature", "runtime"]


class SearchSettings(Section):
    """``[search]``: tries several variants of a pruning, to one or several budgets, and takes the best."""

    enabled: bool = Field(
        False,
        description="Prune to the same latency in several variants, train the best of them briefly, and take the one "
        "whose outputs on validation images are nearest to the original's",
    )
    knobs: list[Knob] = Field(
        ["criterion", "worth", "depth", "precision", "input_size"],
        description="Settings that may differ between the variants; temperature and runtime only if named here",
        min_length=1,
    )
    budgets: list[str] = Field(
        default_factory=list,
        description="Further latency budgets: each gets its own variants; with max_drop, the fastest variant that "
        "keeps the accuracy is taken",
    )
    minutes: PositiveFloat = Field(
        15.0, description="Minutes that the search may take; two variants are compared even if they take longer"
    )
    take: NonNegativeInt = Field(
        0, description="Number of the variant to continue with, as listed in the report; 0: the best"
    )

    @field_validator("budgets")
    @classmethod
    def _are_timed(cls, given: list[str]) -> list[str]:
        """Check each budget, and return it in the form that ``--budget`` takes."""
        parsed = [Budgets.parse(text) for text in given]
        for budgets in parsed:
            if not budgets.main.is_timed:
                raise BudgetError(
                    f"--search compares prunings of equal measured latency, but the budget is {budgets}.",
                    "Name latency budgets: --search-budgets 0.35x,0.25x",
                )
        return list(map(str, parsed))
