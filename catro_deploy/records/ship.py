"""ship/model.json: the network to ship, its input and its outputs."""

from dataclasses import dataclass, field
from typing import Literal

from catro_deploy.records.base import Number, Positive, PositiveCount, Record
from catro_deploy.records.verify import Precision

__all__ = ["Input", "Port", "Shipped", "ShippedAlso", "ShippedFile"]


@dataclass(frozen=True)
class Port:
    """An input or an output of the network; a dynamic dimension is given by a name."""

    name: str
    type: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class Input(Port):
    """The input, and how its values are computed from pixels.

    ``range`` holds the smallest and the largest value. Images are resized to ``resize``, the shorter side or height and
    width, then centre-cropped; None: they are resized to the size of the input. If ``type`` is uint8, the network
    itself normalises the pixels with ``mean`` and ``std``.
    """

    layout: Literal["NCHW", "NHWC"]
    colours: Literal["grey", "RGB"]
    values: str
    mean: tuple[Number, ...]
    std: tuple[Positive, ...]
    range: tuple[Number, Number]
    resize: int | tuple[int, int] | None = None
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"

    def __post_init__(self) -> None:
        """Check that the shape is that of images, with a mean and a std for each channel."""
        if len(self.shape) != 4 or not all(isinstance(size, int) and size > 0 for size in self.shape[1:]):
            raise ValueError("input.shape must be that of a batch of images")
        if {len(self.mean), len(self.std)} != {self.image_shape[0]}:
            raise ValueError("input.mean and input.std must have a value for each channel")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        one, two, three = (int(size) for size in self.shape[1:])
        return (one, two, three) if self.layout == "NCHW" else (three, one, two)


@dataclass(frozen=True)
class ShippedAlso:
    """The file of the same network for a further target, in the same folder."""

    file: str
    precision: Precision
    bytes: PositiveCount
    sha256: str
    runtime: str


@dataclass(frozen=True)
class ShippedFile:
    """A file in the same folder."""

    file: str
    bytes: PositiveCount
    sha256: str


@dataclass(frozen=True)
class Shipped(Record):
    """The network's file, in the same folder, and everything that its user needs to know; sizes are in bytes.

    ``output`` covers all classes; ``top`` are the outputs with the largest values and with their classes, if requested.
    ``memory_bytes`` is the peak memory of the feature maps, counted from the file. ``also`` holds the file for each
    further target, keyed by the user's name for it. ``ir`` holds graph and weights in the form that OpenVINO loads.
    """

    file: str
    precision: Precision
    bytes: PositiveCount
    original_bytes: PositiveCount
    sha256: str
    target: str
    runtime: str
    input: Input
    output: Port
    classes: tuple[str, ...]
    plan_sha256: str
    top: tuple[Port, ...] = ()
    memory_bytes: PositiveCount | None = None
    original_memory_bytes: PositiveCount | None = None
    also: dict[str, ShippedAlso] = field(default_factory=dict)
    ir: tuple[ShippedFile, ...] = ()

    @property
    def largest_bytes(self) -> int:
        """Size of the largest shipped file."""
        return max([self.bytes, *(one.bytes for one in self.also.values())])
