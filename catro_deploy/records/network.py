"""Parts of a network: coupled channels, residual branches, layers. None of them is written to a file but ``Keep``."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Branch", "Group", "Keep", "Layer", "Slot"]


@dataclass(frozen=True)
class Slot:
    """Where a group's channels lie in one module: ``index[j]`` on ``axis`` belongs to the group's ``channel[j]``."""

    module: str
    axis: Literal["out", "in"]
    index: tuple[int, ...]
    channel: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Channels that must be kept or dropped together, in every module that makes or reads them.

    ``producers`` are the convolutions and linear layers that make them, as they run. ``fixed`` says why it must stay.
    """

    name: str
    width: int
    slots: tuple[Slot, ...]
    producers: tuple[str, ...]
    fixed: str = ""


@dataclass(frozen=True)
class Branch:
    """A residual branch that may be removed as a whole, named after its last convolution or linear layer.

    ``groups`` are those whose channels lie inside it alone: all of them go to width 0, which means that the branch is
    gone, or none does. ``modules`` are gone with it.
    """

    name: str
    groups: tuple[str, ...]
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layer:
    """One convolution or linear layer as it runs: ``positions`` outputs of each channel, each of ``kernel`` weights.

    ``stride`` is that of each axis: some ``positions * stride**2`` inputs of each channel are read.
    """

    name: str
    positions: int
    kernel: int
    in_channels: int
    out_channels: int
    groups: int = 1
    stride: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one image."""
        return self.positions * self.kernel * self.in_channels * self.out_channels // self.groups


@dataclass(frozen=True)
class Keep:
    """Which channels of one module stay, on each axis; None keeps all."""

    out: tuple[int, ...] | None = None
    inputs: tuple[int, ...] | None = None
