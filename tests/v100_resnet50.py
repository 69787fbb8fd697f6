"""ResNet-50 at 224x224, priced by convolutions that TensorRT ran on a V100 at batch size 1.

The tables do not contain all of its layers at all widths. Nothing is interpolated:

- For an image size that was not measured, the nearest one by ratio is used: in fp16 and int8 214 pixels for 224, 26
  for 28, 8 for 7 and 5 for the classifier's 1; in fp32 206, 50, 28, 16, 8 and 4.
- Pairs of input and output widths were measured if they differ by a factor of four at most, and if both are powers of
  two or both are three times a power of two. Another pair takes the time of the nearest one that is at least as wide on
  both sides: with zeros for the additional channels it computes the same.
- Pooling was not measured and is left out.

Each convolution was timed alone, so the sum over a network counts one kernel launch per layer; in a queue of kernels
most of that time is hidden.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torchvision.models import resnet50

from catro_deploy.catro.gains import GroupChoice, GroupValue
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.records import Branch, Group, Layer
from tests import v100

__all__ = ["WIDTHS", "Traced", "alone_us", "made_up_values", "measured_pairs", "priced", "traced"]

WIDTHS = (8, 16, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 1280, 1536, 1792, 1920, 2048)
"""Output widths that were measured."""

SEED = 0
# All blocks together are worth a ninth of all widths: about the class separation measured for a trained ResNet-20
# (benchmarks/results/depth.json).
WORTH_OF_BLOCKS = 1 / 9


@dataclass(frozen=True)
class Traced:
    """The network, its groups except the logits, and the removable branches: one in each of the 16 blocks."""

    network: Network
    groups: list[Group]
    branches: list[Branch]

    @property
    def full(self) -> dict[str, int]:
        """The width of every group before pruning."""
        return {group.name: group.width for group in self.groups}


@cache
def traced() -> Traced:
    """ResNet-50; its weights do not matter here."""
    model = resnet50(weights=None).eval()
    network = trace(model, (3, 224, 224))
    groups = [group for group in network.groups if not group.fixed]
    return Traced(network, groups, list(find_branches(model, network)))


def alone_us(
    records: NDArray[np.void], adding: Sequence[str] = (), hidden_us: float = 0.0
) -> Callable[[Layer, float, float], float]:
    """Microseconds of a layer at its input and output widths, by ``records`` at batch size 1.

    Layers in ``adding`` also run a residual addition. ``hidden_us`` is subtracted from each layer.
    """
    table = cache(lambda kernel, stride, size, adds: v100.conv_table(records, kernel, stride, size, 1, adds))
    sizes = np.unique(records["in_size"]).tolist()

    def layer_us(layer: Layer, in_width: float, out_width: float) -> float:
        size = math.isqrt(layer.positions) * layer.stride
        nearest = min(sizes, key=lambda measured: abs(math.log(measured / size)))
        ins, outs, us = table(math.isqrt(layer.kernel), layer.stride, nearest, layer.name in adding)
        beyond = np.add.outer(_ratio_beyond(ins, in_width), _ratio_beyond(outs, out_width))
        return float(us.flat[np.argmin(np.where(np.isnan(us), np.inf, beyond))]) - hidden_us

    return layer_us


def priced(folder: Path, precision: str, hidden_us: float = 0.0) -> LayerCost:
    """The sum of the layers' latencies in microseconds; ``folder`` is the one that CATRO_TEST_DATA names.

    Of the layers that produce the same stream, all but the first run a residual addition.
    """
    records = v100.read(folder, precision)
    network, groups = traced().network, traced().groups
    adding = [name for group in groups for name in group.producers[1:]]
    return LayerCost(network.layers, groups, alone_us(records[records["batch"] == 1], adding, hidden_us))


def measured_pairs(folder: Path, precision: str) -> set[tuple[int, int]]:
    """Pairs of input and output widths that were measured."""
    records = v100.read(folder, precision)
    dense = records[(records["batch"] == 1) & ~records["depthwise"]]
    return set(zip(dense["in_channels"].tolist(), dense["out_channels"].tolist(), strict=True))


def made_up_values(depth: bool = True) -> list[GroupValue]:
    """A made-up worth for each width: no trained weights are available, and it only determines what to keep.

    An additional channel adds its share of the existing ones, as in Algorithm 2 if all were equally good: the sum is
    the logarithm of the width. It counts once per layer of the group, scaled by a seeded random factor. Each branch is
    worth the same. Without ``depth`` no branch may be removed; its worth is still included.
    """
    worths = {group.name: _worths(group) for group in traced().groups}
    inside = [name for branch in traced().branches for name in branch.groups]
    entry = WORTH_OF_BLOCKS * sum(float(worth[-1]) for worth in worths.values()) / len(inside)
    values = []
    for group in traced().groups:
        widths, worth = _widths(group), worths[group.name]
        if group.name in inside:
            worth = worth + entry
            if depth:
                widths, worth = (0, *widths), np.append(0.0, worth)
        values.append(GroupValue(GroupChoice(group.name, widths, len(group.producers)), worth))
    return values


def _ratio_beyond(measured: NDArray[np.int64], width: float) -> NDArray[np.float64]:
    """Logarithm of how much wider the ``measured`` widths are than ``width``; infinity for narrower ones."""
    return np.where(measured >= width, np.log(measured / width), np.inf)


def _widths(group: Group) -> tuple[int, ...]:
    return tuple(width for width in WIDTHS if width <= group.width)


def _worths(group: Group) -> NDArray[np.float64]:
    weight = np.random.default_rng([SEED, zlib.crc32(group.name.encode())]).uniform(0.5, 1.5) * len(group.producers)
    worths: NDArray[np.float64] = weight * np.log(np.array(_widths(group)) / WIDTHS[0])
    return worths
