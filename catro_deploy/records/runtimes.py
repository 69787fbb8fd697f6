"""runtimes.json: the same networks in several runtimes, measured interleaved on the target."""

from dataclasses import dataclass
from typing import Any

from catro_deploy.records.base import Count, Positive, Record, Share
from catro_deploy.records.bench import Speedup
from catro_deploy.records.verify import Precision

__all__ = ["RuntimeRow", "Runtimes"]


@dataclass(frozen=True)
class RuntimeRow:
    """One network in one precision and runtime: median latency, speedup over the reference, accuracy on test images.

    ``accuracy`` is None without labels; ``files`` are the files that the runtime reads; ``served`` is whether the run
    ships this one.
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
    """Everything that was compared; the first row is the reference, ``missing`` holds the missing runtimes and why."""

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
