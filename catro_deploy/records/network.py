"""Parts of a network: coupled channels, residual branches, layers. None of them is written to a file but ``Keep``."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Branch", "Group", "Keep", "Layer", "Slot"]


@dataclass(frozen=True)
class Slot:
    """The place of a group's channels in one module: ``index[j]`` on ``axis`` belongs to the group's ``channel[j]``."""

    module: str
    axis: Literal["out", "in"]
    index: tuple[int, ...]
    channel: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Channels that can only be removed together, in every module that produces or reads them.

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

    ``groups`` are those whose channels are inside it alone: if the branch is removed, all of them have width 0,
    otherwise none. ``modules`` are removed with it.
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
