"""What users write: one small network for each way of coupling channels. All take images of shape (3, 8, 8)."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    """A stem of 8 channels, the ``body`` of a subclass, and a head that reads ``head_reads`` channels."""

    head_reads = 8

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.fc = nn.Linear(self.head_reads, 4)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.body(torch.relu(self.stem(x)))).mean((2, 3)))


class Shuffled(Net):
    """ShuffleNet's shuffle in two groups, by views."""

    def body(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class Halved(Net):
    """The channels are split into halves, one half is convolved, and both are concatenated again."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Conv2d(4, 4, 3, padding=1)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, 1)
        return torch.cat([left, self.side(right)], 1)


class FirstFour(Net):
    """A slice whose size is a constant in the forward: it cannot shrink."""

    head_reads = 4

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :4]


class EverySecond(Net):
    """A strided slice, which would read other channels if some were removed."""

    head_reads = 4

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, ::2]


class Cardinal(Net):
    """A grouped convolution of 4 groups with 2 input and 3 output channels each."""

    head_reads = 12

    def __init__(self) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(8, 12, 3, padding=1, groups=4)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.grouped(x)


class GroupNormed(Net):
    """Normalisation in 4 groups of 2 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, 8)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class LayerNormed(Net):
    """Normalisation over all channels, which stay; those in between may be removed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.scale = nn.Parameter(torch.ones(8, 1, 1))

    def body(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(functional.gelu(self.up(self.norm(x.permute(0, 2, 3, 1)))))
        return x + self.scale * y.permute(0, 3, 1, 2)


class Upsampled(Net):
    """A transposed convolution, and a sub-pixel one: 4 channels become 2 x 2 positions of one."""

    head_reads = 2

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.sub = nn.Conv2d(6, 8, 1)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return functional.pixel_shuffle(self.sub(torch.relu(self.up(x))), 2)


class Functional(nn.Module):
    """User-defined parameters, functional and in-place operations, and a weight that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(6, 3, 3, 3))
        self.gain = nn.Parameter(torch.randn(6, 1, 1))
        self.twice = nn.Conv2d(6, 6, 3, padding=1)
        self.fc = nn.Linear(6 * 4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.conv2d(x, self.first, padding=1).mul_(self.gain).relu_()
        x = self.twice(functional.relu(self.twice(x)))
        return self.fc(functional.max_pool2d(x, 4).view(x.size(0), -1))


class Padded(Net):
    """The option-A shortcut: zeros stand in for the channels that the stream does not have yet."""

    head_reads = 12

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(8, 12, 3, padding=1)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.wide(x) + functional.pad(x, (0, 0, 0, 0, 2, 2))


class AcrossChannels(Net):
    """ECA: a convolution ALONG the channels, whose result gates them."""

    def __init__(self) -> None:
        super().__init__()
        self.along = nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.after = nn.Conv2d(8, 8, 3, padding=1)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.along(x.mean((2, 3)).unsqueeze(1)).squeeze(1)
        return self.after(x * gate.sigmoid()[:, :, None, None])


class Starred(Net):
    """StarNet's product of two convolutions of one input; the first is activated after the second has run."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(8, 12, 1), nn.Conv2d(8, 12, 1)
        self.last = nn.Conv2d(12, 8, 1)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        one, other = self.one(x), self.other(x)
        return self.last(torch.relu(one) * other)


class Assigned(Net):
    """Positions of a feature map are overwritten."""

    def body(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, :, 0] = 0
        return x


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose weights are standardised at every call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        weight = centred / centred.std((1, 2, 3), keepdim=True)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Standardised(Net):
    """Standardised weights depend on all inputs, which stay; a grouped convolution may lose whole groups."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = StandardisedConv2d(8, 8, 3, padding=1)
        self.grouped = StandardisedConv2d(8, 8, 3, padding=1, groups=4)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.grouped(self.inner(x))


class Attending(Net):
    """Positions attend to each other: keys and queries are summed over in products of feature maps."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Conv2d(8, 8, 1) for _ in range(3))

    def body(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (layer(x).flatten(2) for layer in (self.query, self.key, self.value))
        mixed = value @ torch.softmax(key.transpose(1, 2) @ query, 1)
        return mixed.view(x.shape)


class SqueezedConcat(Net):
    """Squeeze and excitation over a concatenation of 5 and 7 channels."""

    head_reads = 12

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(8, 5, 1), nn.Conv2d(8, 7, 3, padding=1)
        self.squeeze, self.excite = nn.Linear(12, 6), nn.Linear(6, 12)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.left(x), self.right(x)], 1)
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3))))))
        return x * gate.view(*x.shape[:2], 1, 1)


class Gated(Net):
    """A gated linear unit: four channels, scaled by four others."""

    head_reads = 4

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return functional.glu(x, 1)


class Blurred(Net):
    """One kernel, repeated for as many channels as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.ones(1, 1, 3, 3) / 9)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        kernel = self.kernel.repeat(x.shape[1], 1, 1, 1)
        return functional.conv2d(x, kernel, stride=2, padding=1, groups=x.shape[1])


class BlurredEight(Net):
    """The same as a tensor that is not a buffer, for a number of channels that is a constant in the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = torch.ones(1, 1, 3, 3) / 9

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, self.kernel.expand(8, -1, -1, -1), padding=1, groups=8)


EVERY = (
    Shuffled, Halved, FirstFour, EverySecond, Cardinal, GroupNormed, LayerNormed, Upsampled, Functional, Padded,
    AcrossChannels, Assigned, Starred, Standardised, Attending, SqueezedConcat, Gated, Blurred, BlurredEight,
)  # fmt: skip


class SamePadded(nn.Conv2d):
    """TensorFlow's "same" padding, which may be on one side only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        border: list[int] = []
        for size, kernel, stride in zip(reversed(x.shape[2:]), self.kernel_size, self.stride, strict=True):
            missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            border += [missing // 2, missing - missing // 2]
        return functional.conv2d(functional.pad(x, border), self.weight, self.bias, self.stride, groups=self.groups)


class NormActivation(nn.BatchNorm2d):
    """A normalisation with an activation, as timm writes it."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.drop, self.act = nn.Identity(), nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.drop(super().forward(x)))


class Derived(nn.Module):
    """Layers of classes derived from torch's that compute the same as torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_bn = SamePadded(3, 6, 3, stride=2, bias=False), NormActivation(6)
        self.depthwise, self.depthwise_bn = SamePadded(6, 6, 5, groups=6, bias=False), NormActivation(6)
        self.point, self.point_bn = nn.Conv2d(6, 7, 1, bias=False), nn.BatchNorm2d(7)
        self.fc = nn.Linear(7, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise_bn(self.depthwise(self.stem_bn(self.stem(x))))
        return self.fc(torch.relu(self.point_bn(self.point(x))).mean((2, 3)))
