"""ship/model.json: the network to ship, its input and its outputs."""

from dataclasses import dataclass
from typing import Literal

from catro_deploy.records.base import Number, Positive, PositiveCount, Record
from catro_deploy.records.verify import Precision

__all__ = ["Input", "Port", "Shipped"]


@dataclass(frozen=True)
class Port:
    """An input or an output of the network; a dimension that may be any is a name."""

    name: str
    type: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class Input(Port):
    """The input, and how its values are made from pixels. ``range`` are the least and the largest of them.

    Images are resized to ``resize``, the shorter side or height and width, and their centre is cut out; None: they are
    resized to the size of the input. ``mean`` and ``std`` normalise pixels of ``type`` uint8 inside the network.
    """

    layout: Literal["NCHW", "NHWC"]
    colours: Literal["grey", "RGB"]
    values: str
    mean: tuple[Number, ...]
    std: tuple[Positive, ...]
    range: tuple[Number, Number]
    resize: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"


@dataclass(frozen=True)
class Shipped(Record):
    """The network's file, which is beside this one, and all that its user must know; sizes are in bytes."""

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
