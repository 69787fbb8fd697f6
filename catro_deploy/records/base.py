"""The base of all records of a run folder."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Interval, Le

__all__ = ["Count", "Divergence", "NonNegative", "Number", "Points", "Positive", "PositiveCount", "Record", "Share"]

LARGEST = 1e15
"""Limit on the magnitude of any number, so that sums and products of numbers stay finite."""

Number = Annotated[float, Interval(ge=-LARGEST, le=LARGEST)]
NonNegative = Annotated[float, Interval(ge=0, le=LARGEST)]
Positive = Annotated[float, Gt(0), Le(LARGEST)]
Share = Annotated[float, Interval(ge=0, le=1)]
Divergence = Annotated[float, Interval(ge=0, le=1e39)]
"""In nats, of float32 logits; large values occur when training diverges."""
Points = Annotated[float, Interval(ge=-100, le=100)]
"""Percentage points gained or lost."""
Count = Annotated[int, Ge(0), Le(int(LARGEST))]
PositiveCount = Annotated[int, Gt(0), Le(int(LARGEST))]


@dataclass(frozen=True)
class Record:
    """The content of one JSON file of a run folder.

    ``format`` is the version of the file's layout; ``FORMAT`` is the only one that this version reads. Unknown keys are
    rejected, here and in nested records, and every number must be finite.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
        "ser_json_inf_nan": "constants",
    }
    FORMAT: ClassVar[int] = 1

    format: int = field(default=1, kw_only=True)
