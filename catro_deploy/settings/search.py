"""``[search]``."""

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat

from catro_deploy.settings.section import Section

__all__ = ["Knob", "SearchSettings"]

Knob = Literal["criterion", "worth", "depth", "precision", "input_size"]


class SearchSettings(Section):
    """``[search]``: several variants of a pruning to the same budget, of which the best is taken."""

    enabled: bool = Field(
        False,
        description="Prune to the same latency in several variants, train the best of them briefly, and take the one "
        "whose answers on validation images are nearest to the original's",
    )
    knobs: list[Knob] = Field(
        ["criterion", "worth", "depth", "precision", "input_size"],
        description="Settings of [prune], and the precision, that may differ between the variants",
        min_length=1,
    )
    minutes: PositiveFloat = Field(15.0, description="After so long no further variant is begun")
    take: NonNegativeInt = Field(
        0, description="Number of the variant to continue with, as the report lists them; 0: the best"
    )
