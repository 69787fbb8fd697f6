"""Small networks whose modules hold sizes of channels as numbers, in all the ways that people write them."""

import torch
from torch import nn


class Mixed(nn.Module):
    """Convolutions of several kernel sizes, each on its part of the channels; the sizes of the parts are a list."""

    def __init__(self) -> None:
        super().__init__()
        self.splits = [6, 3, 3]
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.parts = nn.ModuleList(
            nn.Conv2d(size, size, kernel, padding=kernel // 2, groups=size)
            for size, kernel in zip(self.splits, (3, 5, 7), strict=True)
        )
        self.fc = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = torch.relu(self.stem(x)).split(self.splits, dim=1)
        mixed = torch.cat([conv(part) for conv, part in zip(self.parts, parts, strict=True)], 1)
        return self.fc(mixed.mean((2, 3)))


class Partial(nn.Module):
    """Only some of the channels are convolved; two numbers hold how many are, and how many are not."""

    def __init__(self) -> None:
        super().__init__()
        self.convolved, self.untouched = 3, 5
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        some, others = torch.split(torch.relu(self.stem(x)), [self.convolved, self.untouched], dim=1)
        return self.fc(torch.cat([self.conv(some), others], 1).mean((2, 3)))


class Scales(nn.Module):
    """Parts of one width; the result of one is added to the input of the next one's convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.width = 4
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.fc = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = torch.split(torch.relu(self.stem(x)), self.width, 1)
        second = self.convs[0](second)
        third = self.convs[1](third + second)
        return self.fc(torch.cat([first, second, third], 1).mean((2, 3)))


class Crossing(nn.Module):
    """Half of a stored number is the size of each of two parts: one goes through the block, the other around it."""

    def __init__(self) -> None:
        super().__init__()
        self.expanded = 8
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.block = nn.Conv2d(4, 6, 3, padding=1)
        self.fc = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        around, through = torch.relu(self.stem(x)).split(self.expanded // 2, dim=1)
        return self.fc(torch.cat([self.block(through), around], 1).mean((2, 3)))


class Densely(nn.Module):
    """The first channels are added to the stream, the rest are concatenated to it."""

    def __init__(self) -> None:
        super().__init__()
        self.added = 6
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.conv = nn.Conv2d(6, 9, 3, padding=1)
        self.fc = nn.Linear(9, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        y = torch.relu(self.conv(x))
        return self.fc(torch.cat([x + y[:, : self.added], y[:, self.added :]], 1).mean((2, 3)))


class Viewed(nn.Module):
    """The number of channels is an argument of a view."""

    def __init__(self) -> None:
        super().__init__()
        self.channels = 6
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x))
        return self.fc(x.view(-1, self.channels, x.shape[2] * x.shape[3]).mean(2))


class Chance(nn.Module):
    """Holds a number that equals the size of a half by chance; the halves are made without it."""

    def __init__(self) -> None:
        super().__init__()
        self.loudness = 4
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.side = nn.Conv2d(4, 4, 1)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = torch.relu(self.stem(x)).chunk(2, dim=1)
        return self.fc(torch.cat([left * self.loudness, self.side(right)], 1).mean((2, 3)))


class Blocks(nn.Module):
    """Residual branches that hold sizes; one of these numbers is never read."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.fc(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.half = 8, 4
        self.expand = nn.Conv2d(6, 8, 1)
        self.left, self.right = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 3, 1)
        self.reduce = nn.Conv2d(7, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = torch.relu(self.expand(x)).split([self.half, self.half], dim=1)
        return self.reduce(torch.relu(torch.cat([self.left(left), self.right(right)], 1)))


FREE = [Mixed, Partial, Scales, Crossing, Densely, Viewed, Chance, Blocks]
"""Networks in which everything but the logits may be pruned, because of the numbers or in spite of them."""
