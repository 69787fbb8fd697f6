"""Networks whose forward reads sizes, as in Hugging Face's models, including numbers of channels."""

import math

import torch
from torch import nn
from torch.nn import functional


class CheckedStem(nn.Module):
    """ResNet's embedder: the number of colours is checked."""

    def __init__(self) -> None:
        super().__init__()
        self.colours = 3
        self.conv, self.bn = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] != self.colours:
            raise ValueError(f"{x.shape[1]} channels instead of {self.colours} in {x.size(0)} images")
        assert len(x.shape) == 4, f"{x.dim()} axes"
        return torch.relu(self.bn(self.conv(x)))


class TensorFlowPadded(nn.Module):
    """MobileNetV1's layer: the padding follows from the size by Python arithmetic on numbers."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(inputs, outputs, 3, stride, groups=groups), nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pads: list[int] = []
        for size, stride in zip(reversed(x.shape[2:]), self.conv.stride, strict=True):
            size = int(size)
            missing = max(3 - stride, 0) if size % stride == 0 else max(3 - size % stride, 0)
            pads += [missing // 2, missing - missing // 2]
        return torch.relu(self.bn(self.conv(functional.pad(x, pads))))


class Padding(nn.Module):
    """Checks, odd sizes and numeric paddings in the top-level forward and in submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = CheckedStem()
        self.depthwise, self.point = TensorFlowPadded(16, 16, 2, 16), nn.Conv2d(16, 24, 1)
        self.wide, self.last = TensorFlowPadded(24, 24, 1), nn.Conv2d(24, 24, 3, padding=1)
        self.fc = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[1] == 3
        if x.shape[-1] % 2:
            x = functional.pad(x, (0, 1, 0, 1))
        x = torch.relu(self.point(self.depthwise(self.stem(x))))
        x = self.wide(x)
        y = self.last(x)
        if x.shape[-1] > y.shape[-1]:  # BagNet's
            x = x[:, :, : y.shape[2], : y.shape[3]]
        x = torch.relu(x + y)
        half = math.ceil(x.shape[-1] / 2)
        x = functional.avg_pool2d(x, int(x.shape[2]) if half > 1 else 1)
        return self.fc(x.view(x.size(0), -1))


class Looping(nn.Module):
    """A loop over channels: those whose number the range reads must stay, those made in the loop need not."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.parts = nn.ModuleList(nn.Conv2d(16, 12, 1) for _ in range(2))
        self.fc = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.inner(torch.relu(self.stem(x))))
        parts = [self.parts[place](x[:, 16 * place : 16 * (place + 1)]) for place in range(x.shape[1] // 16)]
        return self.fc(torch.relu(torch.cat(parts, 1)).mean((2, 3)))


class Branching(nn.Module):
    """A condition on the number of channels that is true at all widths but the smallest."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
        self.last, self.fc = nn.Conv2d(12, 10, 1), nn.Linear(10, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        if x.shape[1] > 1:
            x = torch.relu(x)
        x = torch.relu(self.inner(x))
        return self.fc(torch.relu(self.last(x)).mean((2, 3)))


class Viewed(nn.Module):
    """The number of channels is passed, as a number, to a view."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
        self.fc = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.inner(torch.relu(self.stem(x))))
        return self.fc(x.view(x.shape[0], int(x.shape[1]), -1).mean(2))


class LayerWidths(nn.Module):
    """A split whose sizes follow from other layers' widths: no module but those layers holds the number."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.side = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(3, 8, 3, padding=1)
        self.norm, self.merge, self.fc = nn.BatchNorm2d(8), nn.Conv2d(16, 8, 1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = self.norm(self.side(x))
        near = self.merge.in_channels - self.norm.num_features
        inner, outer = torch.split(self.stem(x), [near, self.stem.out_channels - near], dim=1)
        maps = self.merge(torch.cat([inner, side], dim=1)) + outer
        return self.fc(torch.relu(maps).mean((2, 3)))
