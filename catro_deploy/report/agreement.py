"""Agreement with the original in words: what stands in the place of accuracy, and never goes by that name."""

from typing import Literal

__all__ = ["MEASURES", "Measure"]

Measure = Literal["accuracy", "agreement"]
MEASURES: dict[Measure, str] = {"accuracy": "accuracy", "agreement": "agreement with the original"}
"""What networks are judged by, in words."""
