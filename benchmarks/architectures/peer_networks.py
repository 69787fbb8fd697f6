"""Small classifiers that test what the networks of torch-pruning's own tests test; reimplemented.

Each takes images of the shape in ``NETWORKS`` and has one output for each requested class. Where a test's network takes
vectors, these are the flattened image; where it returns feature maps, a mean over positions and a linear layer follow.
Widths are those of the tests, unless a docstring states otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["LEFT_OUT", "NETWORKS", "PeerNetwork", "ScaledNorm"]


def _norm_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs))


def _two_convs(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(_norm_conv(inputs, hidden), nn.GELU(), _norm_conv(hidden, outputs))


def _mean_head(channels: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class CascadedConcat(nn.Module):
    """test_cascaded_concat: a result of ``cat`` is concatenated again, twice, so that offsets add up."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = nn.ModuleList([_two_convs(10, 10, 10), _two_convs(10, 20, 20)])
        self.later = nn.ModuleList([_norm_conv(10, 30), _norm_conv(10, 60)])
        self.mix = nn.Conv2d(120, 10, 1)
        self.head = _mean_head(10, classes)

    def forward(self, images: Tensor) -> Tensor:
        joined = torch.cat([branch(images) for branch in self.first], dim=1)
        for branch in self.later:
            joined = torch.cat([joined, branch(images)], dim=1)
        return self.head(self.mix(joined))


class WideAndDeep(nn.Module):
    """test_concat: linear layers of three and of one feature are concatenated; ten outputs in place of one."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        deep: list[nn.Module] = []
        for inputs, outputs in ((32, 32), (32, 16)):
            deep += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(0.2)]
        self.deep = nn.Sequential(*deep, nn.Linear(16, 1))
        self.wide = nn.Linear(32, 3)
        self.head = nn.Linear(4, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = images.reshape(images.shape[0], -1)
        return torch.sigmoid(self.head(torch.concat([self.wide(features), self.deep(features)], dim=-1)))


class ConcatSplit(nn.Module):
    """test_concat_split: split sizes depend on the widths of other layers; one part is added to the output."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(_norm_conv(10, 10), nn.GELU(), nn.Conv2d(10, 20, 1))
        self.side = nn.Sequential(_norm_conv(10, 10), nn.GELU(), nn.Conv2d(10, 10, 1))
        self.side_norm, self.trunk_norm = nn.BatchNorm2d(10), nn.BatchNorm2d(20)
        self.merge, self.merge_norm = nn.Conv2d(20, 10, 1), nn.BatchNorm2d(10)
        self.head = _mean_head(10, classes)

    def forward(self, images: Tensor) -> Tensor:
        side, trunk = self.side_norm(self.side(images)), self.trunk_norm(self.trunk(images))
        near = self.merge.in_channels - self.side_norm.num_features
        to_merge, to_add = torch.split(trunk, [near, self.trunk_norm.num_features - near], dim=1)
        merged = self.merge_norm(self.merge(torch.cat([to_merge, side], dim=1)))
        return self.head(merged + to_add)


class SplitThree(nn.Module):
    """test_split: two of three parts go through the same layer, so that both must keep the same channels.

    It has an eighth of the test's 512 channels. Each of the test's three outputs has a linear layer, and the logits are
    summed.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.trunk = _two_convs(64, 64, 256)
        self.shared, self.shared_norm = nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64)
        self.own, self.own_norm = nn.Conv2d(128, 64, 1), nn.BatchNorm2d(64)
        self.heads = nn.ModuleList([_mean_head(64, classes) for _ in range(3)])

    def forward(self, images: Tensor) -> Tensor:
        widths = [self.shared.in_channels, self.shared.in_channels, self.own.in_channels]
        first, second, third = torch.split(self.trunk(images), widths, dim=1)
        parts = [self.shared_norm(self.shared(part)) for part in (first, second)]
        parts.append(self.own_norm(self.own(third)))
        logits = [head(part) for head, part in zip(self.heads, parts, strict=True)]
        return logits[0] + logits[1] + logits[2]


class StackedRows(nn.Module):
    """test_non_feature_dim_cat: maps are stacked by height, which couples channels; an eighth of the 512 channels."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.upper, self.lower = _two_convs(64, 64, 64), _two_convs(64, 64, 64)
        self.both, self.last = nn.Conv2d(64, 64, 1), nn.Conv2d(64, 64, 1)
        self.head = _mean_head(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        upper, lower = self.upper(images), self.lower(images)
        stacked = self.both(torch.cat([upper, lower], dim=2))
        top, _ = stacked.split([upper.shape[2], lower.shape[2]], dim=2)
        return self.head(self.last(top))


class ScaledNorm(nn.Module):
    """A custom layer with parameters outside any layer, for which the test registers a function that cuts it."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features) + 0.5)
        self.shift = nn.Parameter(0.1 * torch.randn(features))
        self.mix = nn.Linear(features, features)

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, features) to features of the same shape."""
        length = features.pow(2).sum(dim=1, keepdim=True).sqrt()
        return self.mix(features / length * self.scale + self.shift)


class CustomLayer(nn.Module):
    """test_customized_layer: channels pass through a layer with its own parameters and a norm over all channels."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.flat = nn.Flatten()
        self.enter, self.custom, self.head = nn.Linear(128, 256), ScaledNorm(256), nn.Linear(256, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = functional.relu(self.enter(self.flat(images)))
        return self.head(self.custom(features))


class UnusedParameter(CustomLayer):
    """test_unused_parameters: the same, with an additional parameter that nothing reads."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.unused = nn.Parameter(torch.zeros(10))


class LeNet(nn.Module):
    """test_dependency_lenet: ``view`` turns each channel into sixteen features, and logits pass through a ReLU."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(*(
            layer for pair in ((1, 6), (6, 16)) for layer in (nn.Conv2d(*pair, 5), nn.ReLU(), nn.MaxPool2d(2))
        ))  # fmt: skip
        self.linear = nn.Sequential(nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU())
        self.head = nn.Linear(84, classes)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.convs(images)
        return functional.relu(self.head(self.linear(maps.view(maps.shape[0], -1))))


class ResidualMlp(nn.Module):
    """test_fully_connected_layers: a skip connection of features, without any convolution."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.flat = nn.Flatten()
        self.enter, self.inner, self.head = nn.Linear(128, 256), nn.Linear(256, 256), nn.Linear(256, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = functional.relu(self.enter(self.flat(images)))
        return self.head(features + functional.relu(self.inner(features)))


class Reshaped(nn.Module):
    """test_reshape: ``view`` turns features into maps with as many channels as the next layer reads, and back."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.flat = nn.Flatten()
        self.enter = nn.Linear(512, 4096)
        self.grow = nn.ConvTranspose2d(256, 128, 4, stride=2, padding=1)
        self.grow_again = nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1)
        self.head = nn.Linear(64 * 16 * 16, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = functional.relu(self.enter(self.flat(images)))
        maps = functional.relu(self.grow(features.view(-1, self.grow.in_channels, 4, 4)))
        return self.head(torch.flatten(functional.relu(self.grow_again(maps)), 1))


class OneChannel(nn.Module):
    """test_single_channel_output: the last map has one channel, which must be kept."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 64, 2, 2), nn.Conv2d(64, 1, 3, 1, 1)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(width) for width in (16, 64, 1)])
        self.head = nn.Linear(16 * 16, classes)

    def forward(self, images: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            images = functional.relu(norm(conv(images)))
        return self.head(images.flatten(1))


class Transposed(nn.Module):
    """test_pruner, test_isomorphic: a transposed convolution, whose weights have inputs first, between two others."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        convs = [nn.Conv2d(3, 16, 3, padding=1), nn.ConvTranspose2d(16, 64, 2, 2), nn.Conv2d(64, 8, 3, padding=1)]
        self.steps = nn.Sequential(
            *(layer for conv in convs for layer in (conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU()))
        )
        self.head = _mean_head(8, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.steps(images))


class AddedInPlace(nn.Module):
    """test_graph_drawing: a skip connection is added in place."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.enter, self.exit = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.inner = nn.Conv2d(16, 8, 3, padding=1)
        self.head = _mean_head(16, classes)

    def forward(self, images: Tensor) -> Tensor:
        skip = self.enter(images)
        maps = self.exit(self.inner(skip))
        maps += skip
        return self.head(maps)


@dataclass(frozen=True)
class PeerNetwork:
    """A network, and the tests of torch-pruning that it represents."""

    model: str
    tests: tuple[str, ...]
    input_shape: tuple[int, int, int]

    @property
    def title(self) -> str:
        """Its name without module or library."""
        return self.model.rpartition(":")[2]


def _own(kind: Callable[[int], nn.Module], input_shape: tuple[int, int, int], *tests: str) -> PeerNetwork:
    return PeerNetwork(f"{__name__}:{getattr(kind, '__name__', '')}", tests, input_shape)


NETWORKS = (
    _own(CascadedConcat, (10, 7, 7), "cascaded_concat"),
    _own(WideAndDeep, (2, 4, 4), "concat"),
    _own(ConcatSplit, (10, 7, 7), "concat_split"),
    _own(SplitThree, (64, 7, 7), "split"),
    _own(StackedRows, (64, 7, 7), "non_feature_dim_cat"),
    _own(CustomLayer, (2, 8, 8), "customized_layer"),
    _own(UnusedParameter, (2, 8, 8), "unused_parameters"),
    _own(LeNet, (1, 28, 28), "dependency_lenet"),
    _own(ResidualMlp, (2, 8, 8), "fully_connected_layers"),
    _own(Reshaped, (2, 16, 16), "reshape"),
    _own(OneChannel, (3, 32, 32), "single_channel_output"),
    _own(Transposed, (3, 32, 32), "pruner", "isomorphic"),
    _own(AddedInPlace, (3, 32, 32), "graph_drawing"),
    PeerNetwork("torchvision:resnet18", ("dependency_graph", "importance", "group_prune", "load"), (3, 64, 64)),
    PeerNetwork("torchvision:convnext_tiny", ("convnext", "unwrapped_parameters"), (3, 64, 64)),
)

LEFT_OUT = (
    (("multiple_inputs_and_outputs",), "two inputs and three outputs: no classifier of one image"),
    (("serialization",), "a vision transformer: out of scope"),
    (
        ("torchvision_models", "backward"),
        "every model of torchvision: the classifiers are covered in [architectures](architectures.md); segmentation, "
        "optical flow and transformers are out of scope",
    ),
    (
        ("pruning_fn", "manual_prune", "flops", "soft_pruning", "regularization", "rounding"),
        "torchvision's AlexNet, ResNet-18, ResNet-50 and DenseNet-121, which are covered in "
        "[architectures](architectures.md); the tests are about single functions of the library",
    ),
)
"""Tests that no network represents, and why."""
