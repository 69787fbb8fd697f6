"""Small networks that the exporter rewrites in ways that resizing must follow."""

import torch
from torch import nn
from torch.nn import functional

from tests.graph.cut_networks import CASES
from tests.graph.networks import Branches, GatedConcat, Residual, randomised


class Flattened(nn.Module):
    """A map of 4x4 positions is flattened for a linear layer, another of 2x2 is viewed for the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.fc = nn.Linear(6 * 4 * 4, 16)
        self.norm = nn.BatchNorm1d(16)
        self.pooled = nn.Linear(6 * 2 * 2, 16)
        self.last = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x))
        pooled = functional.max_pool2d(x, 2).view(x.shape[0], -1)
        return self.last(torch.relu(self.norm(self.fc(torch.flatten(x, 1))) + self.pooled(pooled)))


class Resizing(nn.Module):
    """Upsampling by a factor, of four channels (Resize also has four scales), and to a size; edges are padded."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.large = nn.Conv2d(3, 5, 3, padding=1)
        self.both = nn.Conv2d(9, 6, 3)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = functional.interpolate(functional.gelu(self.small(x)), scale_factor=2.0)
        large = functional.interpolate(functional.hardswish(self.large(x)), size=(x.shape[2], x.shape[3]))
        both = self.both(functional.pad(torch.cat([small, large], 1), (1, 1, 1, 1)))
        return self.fc(functional.leaky_relu(both).amax((2, 3)))


class Alike(nn.Module):
    """All biases are 0.5, which the exporter merges into one constant, although their groups differ."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(inputs, 8, 3, padding=1) for inputs in (3, 8, 8))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(torch.relu(conv(x)))
        return self.fc(x.mean((2, 3)))


def alike() -> nn.Module:
    model = Alike().eval()
    for conv in model.convs:
        nn.init.constant_(conv.bias, 0.5)
    return model


class Twice(nn.Module):
    """One convolution is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.again = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.again(torch.relu(self.again(torch.relu(self.stem(x))))))
        return self.fc(x.mean((2, 3)))


class ChannelsLast(nn.Module):
    """Linear layers on maps, whose weights the exporter renames; the scale is folded into the convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(6, 1, 1))
        self.norm, self.wide, self.narrow = nn.LayerNorm(6), nn.Linear(6, 12, bias=False), nn.Linear(12, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * self.scale
        x = x + self.narrow(functional.gelu(self.wide(self.norm(x.permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)
        return self.fc(x.mean((2, 3)))


SMALL = {
    "residual": lambda: randomised(Residual()),
    "branches": lambda: randomised(Branches()),
    "gated": lambda: randomised(GatedConcat()),
    "flattened": lambda: randomised(Flattened()),
    "resizing": lambda: randomised(Resizing()),
    "alike": alike,
    "twice": lambda: randomised(Twice()),
    "channels last": lambda: randomised(ChannelsLast()),
    # The exporter merges two convolutions with one weight; one- and three-dimensional layers do not matter here.
    **{name: case.network for name, case in CASES.items() if name not in ("Shared", "OneAndThree")},
}
LARGE = {
    "cifar_resnet20": 32,
    "torchvision:mobilenet_v3_small": 64,  # with squeeze and excitation
    "torchvision:shufflenet_v2_x0_5": 64,
}
