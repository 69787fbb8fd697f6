"""Networks with parts that torch.fx cannot trace."""

import torch
from torch import nn

from tests.graph.networks import Residual


class ByCount(nn.Module):
    """A convolution whose output is negated in large batches."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        return x if x.shape[0] < 60 else -x


class Between(nn.Module):
    """``inside`` is called between convolutions that can be traced."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(6, 6, 1), inside)
        self.last = nn.Conv2d(6, 5, 3, padding=1)
        self.fc = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.last(torch.relu(self.block(torch.relu(self.stem(x))))))
        return self.fc(x.mean((2, 3)))


class Shared(nn.Module):
    """One convolution and its normalisation, called at two resolutions, with another convolution in between."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.same = nn.Conv2d(6, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.between = nn.Conv2d(6, 6, 3, stride=2, padding=1)
        self.last = nn.Conv2d(6, 5, 1)
        self.fc = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(self.norm(self.same(x)))
        x = torch.relu(self.between(x))
        x = torch.relu(self.norm(self.same(x)))
        return self.fc(torch.relu(self.last(x)).mean((2, 3)))


class Halves(Residual):
    """The halves of a map (a tuple) and a size are held while other layers run; an activation overwrites its input.

    The second half of ``wide`` is added to an earlier map, so that its channels are coupled with those of that map.
    """

    def __init__(self) -> None:
        super().__init__()
        self.swish = nn.SiLU(inplace=True)
        self.early = nn.Conv2d(6, 4, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.swish(self.bn(self.stem(x)))
        count = x.size(0)
        early = self.swish(self.early(x))
        left, right = self.wide(x).chunk(2, 1)
        right = right + early
        left = self.swish(self.middle(left))
        return self.fc(torch.cat([left, right], 1).reshape(count, -1, 16).mean(2))
