"""build.json: the TensorRT engines of both networks."""

from dataclasses import dataclass
from typing import Any

from catro_deploy.records.base import Count, NonNegative, Positive, Record

__all__ = ["Build", "Engine", "Place"]


@dataclass(frozen=True)
class Place:
    """What an engine is tied to: the version of TensorRT, and the GPU with its number of multiprocessors (``sms``).

    On a Jetson also the ``module`` and its ``power_mode``.
    """

    tensorrt: str
    gpu: str
    compute_capability: str
    sms: Count
    module: str | None = None
    power_mode: str | None = None


@dataclass(frozen=True)
class Engine:
    """One engine: its source, where and how it was built, and its layers after TensorRT's fusions.

    ``layers`` is the output of TensorRT's engine inspector. ``rebuilds_us`` are the median latencies of engines that
    were rebuilt from scratch.
    """

    onnx_sha256: str
    engine_sha256: str
    place: Place
    settings: dict[str, Any]
    metadata: dict[str, str]
    seconds: NonNegative
    layers: dict[str, Any]
    rebuilds_us: tuple[Positive, ...]

    @property
    def layer_count(self) -> int:
        """The number of layers after fusion."""
        found = self.layers.get("Layers")
        return len(found) if isinstance(found, list) else 0

    @property
    def dla_parts(self) -> int | None:
        """How many of these layers are parts of the network that run on a DLA; None if no DLA was requested."""
        found = self.layers.get("Layers")
        if self.settings.get("dla") is None or not isinstance(found, list):
            return None
        return sum("DLA" in str(layer.get("LayerType")) for layer in found if isinstance(layer, dict))

    @property
    def spread(self) -> float | None:
        """The slowest rebuild over the fastest; None if there were none."""
        return max(self.rebuilds_us) / min(self.rebuilds_us) if self.rebuilds_us else None


@dataclass(frozen=True)
class Build(Record):
    """The engines of both networks."""

    original: Engine
    pruned: Engine
