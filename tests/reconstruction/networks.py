"""Small networks of every kind of layer, some of whose channels are copies of others, and their reconstruction."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.cut.kinds import is_transposed
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.reconstruction.graphs import CutGraph, OriginalGraph
from catro_deploy.reconstruction.images import MixedImages
from catro_deploy.reconstruction.refit import Reconstruction, reconstruct_, write_back_
from catro_deploy.records import Group, Keep
from tests.graph.networks import Branches, GatedConcat, Grouped, Residual, randomised
from tests.graph.user_networks import Derived

SHAPE = (3, 8, 8)


def pooled(*layers: nn.Module, width: int) -> nn.Module:
    """``layers``, whose maps have ``width`` channels, followed by a classifier of four classes."""
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4))


def strided(norm: Callable[[int], Sequence[nn.Module]] = lambda width: ()) -> nn.Module:
    """Convolutions with a stride, with a dilation, and with a 1x1 kernel, each followed by the layers of ``norm``."""
    return pooled(
        *(nn.Conv2d(3, 6, 3, padding=1), *norm(6), nn.ReLU()),
        *(nn.Conv2d(6, 8, 3, stride=2, padding=1), *norm(8), nn.ReLU()),
        *(nn.Conv2d(8, 6, 3, padding=2, dilation=2), *norm(6), nn.ReLU()),
        *(nn.Conv2d(6, 6, 1), *norm(6), nn.ReLU()),
        width=6,
    )


def depthwise() -> nn.Module:
    """A depthwise convolution and a pointwise one."""
    return pooled(
        *(nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU6()),
        *(nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6, bias=False), nn.BatchNorm2d(6), nn.ReLU6()),
        *(nn.Conv2d(6, 7, 1, bias=False), nn.BatchNorm2d(7)),
        width=7,
    )


def transposed() -> nn.Module:
    """A transposed convolution with its own normalisation."""
    return pooled(
        *(nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.ConvTranspose2d(6, 5, 3, stride=2, padding=1, output_padding=1), nn.BatchNorm2d(5), nn.ReLU()),
        nn.Conv2d(5, 6, 3),
        width=6,
    )


def flattened() -> nn.Module:
    """Linear layers after a flattened map."""
    return nn.Sequential(
        *(nn.Conv2d(3, 5, 3, stride=4), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(5 * 4, 8), nn.ReLU(), nn.Linear(8, 4)),
    )


class Stream(nn.Module):
    """Two blocks on one stream, and one with a projection to another."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_bn = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        for block, (inputs, outputs, stride) in enumerate([(6, 6, 1), (6, 6, 1), (6, 8, 2)]):
            self.add_module(f"in{block}", nn.Conv2d(inputs, 5, 3, stride, 1, bias=False))
            self.add_module(f"in{block}_bn", nn.BatchNorm2d(5))
            self.add_module(f"out{block}", nn.Conv2d(5, outputs, 3, 1, 1, bias=False))
            self.add_module(f"out{block}_bn", nn.BatchNorm2d(outputs))
        self.down, self.down_bn = nn.Conv2d(6, 8, 1, 2, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem_bn(self.stem(x)))
        for block in range(3):
            inner = torch.relu(self.get_submodule(f"in{block}_bn")(self.get_submodule(f"in{block}")(x)))
            inner = self.get_submodule(f"out{block}_bn")(self.get_submodule(f"out{block}")(inner))
            x = torch.relu(inner + (x if block < 2 else self.down_bn(self.down(x))))
        return self.fc(x.mean((2, 3)))


KINDS: dict[str, Callable[[], nn.Module]] = {
    "without norms": strided,
    "batch norm": lambda: strided(lambda width: (nn.BatchNorm2d(width),)),
    "group norm": lambda: strided(lambda width: (nn.GroupNorm(width // 2, width),)),
    "depthwise": depthwise,
    "transposed": transposed,
    "flattened": flattened,
    "grouped": Grouped,
    "concatenation with a gate": Branches,
    "gated concatenation": GatedConcat,
    "residual": Residual,
    "stream": Stream,
    "derived classes": Derived,
}


def images(count: int = 160, seed: int = 0, batch: int = 64, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(count, *SHAPE, generator=generator).to(dtype).split(batch))


def noted_images(sizes: list[int]) -> tuple[MixedImages, list[int]]:
    """Batches of these ``sizes``, and a list to which the size of each batch is added when it is assembled."""
    read: list[int] = []

    def finish(batch: torch.Tensor) -> torch.Tensor:
        read.append(len(batch))
        return batch

    count = sum(sizes)
    return MixedImages(torch.cat(images(count)), range(count), sizes, finish), read


def calibrated(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A network whose normalisations have the statistics of its images, so that features have ordinary magnitudes."""
    torch.manual_seed(seed)
    model = make().train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    with torch.no_grad():
        model(torch.cat(images()))
    return model.eval()


@dataclass
class Solved:
    """A cut network before and after its reconstruction, and ``model``, to which the result was written back."""

    original: OriginalGraph
    before: CutGraph
    after: CutGraph
    found: Reconstruction
    model: nn.Module


def solved(
    model: nn.Module,
    keeps: Mapping[str, Keep],
    batches: Sequence[torch.Tensor],
    dropped: Sequence[str] = (),
    dtype: torch.dtype = torch.float32,
) -> Solved:
    """Cut ``model`` and solve its layers; ``dtype`` is that of the graphs and of ``batches``."""
    original = OriginalGraph.of(model, SHAPE)
    original.module.to(dtype)
    before, after = original.cut(keeps, dropped), original.cut(keeps, dropped)
    found = reconstruct_(original, after, batches, MemoryLimit(2**30))
    pruned = copy.deepcopy(model)
    if not dropped:
        write_back_(apply_keeps_(pruned, keeps), original, after, found)
    return Solved(original, before, after, found, pruned)


def free_groups(network: Network) -> list[Group]:
    return [group for group in network.groups if not group.fixed]


def some_channels(network: Network, seed: int = 0) -> dict[str, list[int]]:
    """Some channels of each group that may be pruned: at least one, but not all."""
    pick = random.Random(seed)
    return {g.name: sorted(pick.sample(range(g.width), pick.randint(1, g.width - 1))) for g in free_groups(network)}


def keeps_for(model: nn.Module, seed: int = 0) -> dict[str, Keep]:
    """What is left of ``model`` after some channels of each group are removed."""
    network = trace(model, SHAPE)
    return keeps_of(network.groups, some_channels(network, seed), network.sizes)


def with_copies(make: Callable[[], nn.Module], seed: int) -> tuple[nn.Module, dict[str, Keep]]:
    """A random network, and a cut of it that removes only channels of which copies stay."""
    model = randomised(make(), seed)
    network, pick = trace(model, SHAPE), random.Random(seed)
    kept = some_channels(network, seed)
    for group in free_groups(network):
        for gone in set(range(group.width)) - set(kept[group.name]):
            copy_channel_(model, group, pick.choice(kept[group.name]), gone)
    return model, keeps_of(network.groups, kept, network.sizes)


def copy_channel_(model: nn.Module, group: Group, source: int, to: int) -> None:
    """Make every module that produces ``group`` compute the channel ``to`` in the same way as ``source``."""
    for slot in group.slots:
        if slot.axis == "out":
            places = [[i for i, c in zip(slot.index, slot.channel, strict=True) if c == one] for one in (source, to)]
            module = model.get_submodule(slot.module)
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                if tensor.ndim:
                    along = tensor.data.movedim(1, 0) if tensor.ndim > 1 and is_transposed(module) else tensor.data
                    along[places[1]] = along[places[0]]


def outputs(model: nn.Module, batches: Sequence[torch.Tensor]) -> torch.Tensor:
    with torch.inference_mode():
        return torch.cat([model(batch) for batch in batches])


def deviation(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest deviation, relative to the largest value."""
    return float((found - expected).abs().max() / expected.abs().max())
