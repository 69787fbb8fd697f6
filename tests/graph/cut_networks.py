"""Small networks that cover every place from which channels are cut, each with hand-written groups."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from catro_deploy.records import Group, Slot
from tests.graph.by_hand import atoms, group
from tests.graph.networks import randomised


class Grouped(nn.Module):
    """A residual block as in ResNeXt: 4 convolution groups of 3 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.expand, self.expand_bn = nn.Conv2d(8, 12, 1, bias=False), nn.BatchNorm2d(12)
        self.grouped, self.grouped_bn = nn.Conv2d(12, 12, 3, padding=1, groups=4, bias=False), nn.BatchNorm2d(12)
        self.reduce = nn.Conv2d(12, 8, 1)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        inner = torch.relu(self.grouped_bn(self.grouped(torch.relu(self.expand_bn(self.expand(x))))))
        return self.fc(torch.relu(x + self.reduce(inner)).mean((2, 3)))

    groups = (
        group(
            "stem",
            8,
            *(atoms(name, "out", 8) for name in ("stem", "reduce")),
            *(atoms(name, "in", 8) for name in ("expand", "fc")),
        ),
        group(
            "expand",
            4,
            *(atoms(name, "out", 4, 3) for name in ("expand", "expand_bn", "grouped", "grouped_bn")),
            *(atoms(name, "in", 4, 3) for name in ("grouped", "reduce")),
        ),
    )


class Multiplied(nn.Module):
    """A depthwise convolution with two outputs per channel, and PReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 5, 3, padding=1)
        self.depthwise = nn.Conv2d(5, 10, 3, padding=1, groups=5)
        self.act = nn.PReLU(10)
        self.last = nn.Conv2d(10, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.act(self.depthwise(torch.relu(self.first(x))))).amax((2, 3))

    groups = (
        group(
            "first",
            5,
            *(atoms(name, side, 5) for name, side in (("first", "out"), ("depthwise", "in"))),
            *(atoms(n, side, 5, 2) for n, side in (("depthwise", "out"), ("act", "out"), ("last", "in"))),
        ),
    )


class Upsampled(nn.Module):
    """Transposed convolutions: one with 2 groups (3 channels to 4 each), and a plain one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.grouped = nn.ConvTranspose2d(6, 8, 2, stride=2, groups=2)
        self.plain = nn.ConvTranspose2d(8, 5, 3, padding=1)
        self.fc = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.grouped(torch.relu(self.first(x))))
        return self.fc(torch.relu(self.plain(x)).mean((2, 3)))

    groups = (
        group(
            "first",
            2,
            *(atoms(name, side, 2, 3) for name, side in (("first", "out"), ("grouped", "in"))),
            *(atoms(name, side, 2, 4) for name, side in (("grouped", "out"), ("plain", "in"))),
        ),
        group("plain", 5, atoms("plain", "out", 5), atoms("fc", "in", 5)),
    )


class Normalised(nn.Module):
    """GroupNorm over 4 groups of 2, InstanceNorm, BatchNorm1d without weights, and a map of 4x4 that is flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.by_group = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GroupNorm(4, 8)
        self.second, self.by_image = nn.Conv2d(8, 6, 3, padding=1), nn.InstanceNorm2d(6, affine=True)
        self.fc, self.plain = nn.Linear(6 * 16, 7), nn.BatchNorm1d(7, affine=False)
        self.last = nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.by_image(self.second(torch.relu(self.by_group(self.first(x))))))
        return self.last(torch.relu(self.plain(self.fc(torch.flatten(x, 1)))))

    groups = (
        group("first", 4, *(atoms(n, "out", 4, 2) for n in ("first", "by_group")), atoms("second", "in", 4, 2)),
        group("second", 6, *(atoms(n, "out", 6) for n in ("second", "by_image")), atoms("fc", "in", 6, 16)),
        group("fc", 7, *(atoms(name, "out", 7) for name in ("fc", "plain")), atoms("last", "in", 7)),
    )


class Bare(nn.Module):
    """Parameters and buffers outside layers: a scale, an offset that is not saved, and a kernel with its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(6, 1, 1))
        self.register_buffer("offset", torch.ones(1, 6, 1, 1), persistent=False)
        self.kernel, self.bias = nn.Parameter(torch.ones(5, 6, 3, 3)), nn.Parameter(torch.ones(5), requires_grad=False)
        self.by_place = nn.Parameter(torch.ones(1, 5, 8, 8))
        self.fc = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x) * self.scale + self.offset)
        x = functional.conv2d(x, self.kernel, self.bias, padding=1) * self.by_place
        return self.fc(x.mean((2, 3)))

    groups = (
        group("first", 6, *(atoms(n, "out", 6) for n in ("first", "scale", "offset")), atoms("kernel", "in", 6)),
        group("kernel", 5, *(atoms(n, "out", 5) for n in ("kernel", "bias", "by_place")), atoms("fc", "in", 5)),
    )


class Shared(nn.Module):
    """A norm that is used twice, under two names, and two convolutions that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = self.alias = nn.BatchNorm2d(6)
        self.one, self.other = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.other.weight = self.one.weight
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.alias(self.one(torch.relu(self.norm(self.first(x)))))
        return self.fc(torch.relu(self.other(torch.relu(x))).mean((2, 3)))

    groups = (
        group(
            "first",
            6,
            *(atoms(name, "out", 6) for name in ("first", "norm", "one", "other")),
            *(atoms(name, "in", 6) for name in ("one", "other", "fc")),
        ),
    )


class GatedBranches(nn.Module):
    """Squeeze and excitation after a concatenation: its outputs are the channels of both branches."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 6, 3, padding=1)
        self.squeeze, self.excite = nn.Conv2d(10, 5, 1), nn.Conv2d(5, 10, 1)
        self.fc = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([torch.relu(self.left(x)), torch.relu(self.right(x))], 1)
        x = x * torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.fc(x.mean((2, 3)))

    groups = (
        *(
            group(
                name,
                width,
                *(atoms(made, "out", width, at=at) for made, at in ((name, 0), ("excite", first))),
                *(atoms(read, "in", width, at=first) for read in ("squeeze", "fc")),
            )
            for name, width, first in (("left", 4, 0), ("right", 6, 4))
        ),
        group("squeeze", 5, atoms("squeeze", "out", 5), atoms("excite", "in", 5)),
    )


class Shuffled(nn.Module):
    """Channels are shuffled across two halves; one half goes through a depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        batch, channels, height, width = x.shape
        x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)
        left, right = x.chunk(2, 1)
        return self.fc(torch.cat([left, self.depthwise(right)], 1).mean((2, 3)))

    # After the shuffle: 0 4 1 5 | 2 6 3 7. Channels at the same place of both halves are coupled.
    groups = (
        group(
            "first",
            2,
            Slot("first", "out", tuple(range(8)), (0, 1, 0, 1, 0, 1, 0, 1)),
            *(Slot("depthwise", side, (0, 1, 2, 3), (0, 0, 1, 1)) for side in ("out", "in")),
            Slot("fc", "in", tuple(range(8)), (0, 0, 1, 1, 0, 0, 1, 1)),
        ),
    )


class GainConv(nn.Conv2d):
    """A user-defined convolution with a gain for each channel."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)
        self.gain = nn.Parameter(torch.ones(outputs, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, self.weight * self.gain, self.bias, self.stride, self.padding)


class NormAct(nn.BatchNorm2d):
    """A user-defined normalisation with its activation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(super().forward(x))


class Subclassed(nn.Module):
    """Subclasses of layers that can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = GainConv(3, 6), NormAct(6)
        self.second = GainConv(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(self.first(x))).mean((2, 3))

    groups = (group("first", 6, *(atoms(n, "out", 6) for n in ("first", "norm")), atoms("second", "in", 6)),)


class OneAndThree(nn.Module):
    """One-dimensional and three-dimensional layers."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.line_bn, self.line_up = nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ConvTranspose1d(4, 5, 2)
        self.cube, self.cube_bn, self.cube_up = nn.Conv3d(1, 4, 2), nn.BatchNorm3d(4), nn.ConvTranspose3d(4, 6, 2)
        self.line_fc, self.cube_fc = nn.Linear(5, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        line = torch.relu(self.line_up(self.line_bn(self.line(x.flatten(2)))))
        cube = torch.relu(self.cube_up(self.cube_bn(self.cube(x[:, None]))))
        return self.line_fc(line.mean(2)) + self.cube_fc(cube.mean((2, 3, 4)))

    groups = tuple(
        one
        for way, width in (("line", 5), ("cube", 6))
        for one in (
            group(way, 4, *(atoms(n, "out", 4) for n in (way, f"{way}_bn")), atoms(f"{way}_up", "in", 4)),
            group(f"{way}_up", width, atoms(f"{way}_up", "out", width), atoms(f"{way}_fc", "in", width)),
        )
    )


@dataclass(frozen=True)
class Case:
    """A network for 8x8 images, built with random weights, and its groups."""

    make: Callable[[], nn.Module]
    groups: tuple[Group, ...]

    def network(self, seed: int = 0) -> nn.Module:
        return randomised(self.make(), seed)

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """The (out, in) channels of each module, according to the slots, which cover every index."""
        sizes: dict[str, list[int]] = {}
        for slot in (slot for one in self.groups for slot in one.slots):
            both = sizes.setdefault(slot.module, [0, 0])
            both[slot.axis == "in"] = max(both[slot.axis == "in"], *(index + 1 for index in slot.index))
        return {module: (out, inputs) for module, (out, inputs) in sizes.items()}


NETWORKS = (
    Grouped, Multiplied, Upsampled, Normalised, Bare, Shared, GatedBranches, Shuffled, Subclassed, OneAndThree,
)  # fmt: skip
CASES = {network.__name__: Case(network, network.groups) for network in NETWORKS}
