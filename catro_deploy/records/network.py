"""Parts of a network: coupled channels, residual branches, layers. Only ``Keep`` is written to a file."""

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

    ``producers`` are the convolutions and linear layers that compute them, in the order of execution. ``fixed`` is the
    reason why the group must keep its width; empty if it need not.
    """

    name: str
    width: int
    slots: tuple[Slot, ...]
    producers: tuple[str, ...]
    fixed: str = ""

    def narrowest(self, channels: int) -> int:
        """The smallest width at which the first producer has at least this many channels.

        A grouped convolution, group norm or shuffle makes several of its channels one channel of the group.
        """
        first = [slot for slot in self.slots if slot.module in self.producers[:1] and slot.axis == "out"]
        coupled = sum(len(slot.index) for slot in first)
        return -(-channels * self.width // coupled) if coupled else channels


@dataclass(frozen=True)
class Branch:
    """A residual branch that may be removed as a whole, named after its last convolution or linear layer.

    ``groups`` are the groups whose channels occur only inside it: if the branch is removed, all of them have width 0,
    otherwise none has. ``modules`` are removed with it.
    """

    name: str
    groups: tuple[str, ...]
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layer:
    """One convolution or linear layer as executed: ``positions`` outputs per channel, with ``kernel`` weights each.

    ``stride`` is the stride along each axis: about ``positions * stride**2`` inputs of each channel are read.
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
        """Multiply-accumulates per image."""
        return self.positions * self.kernel * self.in_channels * self.out_channels // self.groups


@dataclass(frozen=True)
class Keep:
    """The channels of one module that are kept, on each axis; None keeps all."""

    out: tuple[int, ...] | None = None
    inputs: tuple[int, ...] | None = None
