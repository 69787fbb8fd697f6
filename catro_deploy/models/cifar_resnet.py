"""ResNets for 32x32 images: 3x3 stem of 16 channels, three stages of 16, 32 and 64, two-convolution blocks.

After section 4.2 of He et al., "Deep Residual Learning for Image Recognition" (2016), with 1x1 projections where the
shape changes. Parameters have torchvision's names.
"""

import torch
from torch import nn

__all__ = ["CifarResNet", "cifar_resnet"]


class Block(nn.Module):
    """Two 3x3 convolutions with an identity or a 1x1 projection as shortcut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, in_channels, h, w) to (n, out_channels, h / stride, w / stride)."""
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        return torch.relu(x + identity)


class CifarResNet(nn.Module):
    """The whole network; ``depth`` is 6n + 2."""

    def __init__(self, depth: int, classes: int) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (n, 3, h, w) to logits (n, classes)."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: torch.Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


def _stage(in_channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = Block(in_channels, out_channels, stride)
    return nn.Sequential(first, *(Block(out_channels, out_channels, 1) for _ in range(blocks - 1)))


def cifar_resnet(depth: int, classes: int) -> CifarResNet:
    """Build a ResNet of ``depth`` 20, 32, 56, 110 or another 6n + 2."""
    return CifarResNet(depth, classes)
