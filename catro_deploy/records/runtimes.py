"""runtimes.json: the same networks by several runtimes, measured interleaved on the target."""

from dataclasses import dataclass
from typing import Any

from catro_deploy.records.base import Count, Positive, Record, Share
from catro_deploy.records.bench import Speedup
from catro_deploy.records.verify import Precision

__all__ = ["RuntimeRow", "Runtimes"]


@dataclass(frozen=True)
class RuntimeRow:
    """One network in a precision by a runtime: median latency, speed against the reference, accuracy on test images.

    ``accuracy`` is None without labels; ``files`` are what that runtime reads; ``served`` is what the run ships.
    """

    runtime: str
    network: str
    precision: Precision
    p50_us: Positive
    speedup: Speedup
    accuracy: Share | None
    files: tuple[str, ...]
    served: bool


@dataclass(frozen=True)
class Runtimes(Record):
    """All that was compared; the first row is the reference, ``missing`` are runtimes that are not there, and why."""

    rows: tuple[RuntimeRow, ...]
    fastest: Count
    missing: dict[str, str]
    test_images: Count
    warnings: tuple[str, ...]
    environment: dict[str, Any]

    def __post_init__(self) -> None:
        """Check that the fastest is one of the rows."""
        if self.fastest >= len(self.rows):
            raise ValueError("fastest must be one of the rows")
