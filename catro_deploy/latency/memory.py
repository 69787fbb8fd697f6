"""The memory that feature maps take at given widths: a sum over the groups at each step of the execution order.

The bytes of a feature map are a constant plus a term for each channel of the groups that it holds. While a node runs,
memory holds the sum of the maps that are alive then, so a limit becomes one row of the linear program for each node. If
a branch is removed, the maps of its addition are still counted: the model then overestimates, and the count from the
file decides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from torch import nn

from catro_deploy.catro.gains import CostTables
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.onnx.footprint import feature_maps, tensor_extents
from catro_deploy.graph.onnx.interface import PLAIN
from catro_deploy.latency.profile.subject import REFERENCE, Subject, opened
from catro_deploy.latency.template import Widths
from catro_deploy.records import Group
from catro_deploy.transports.execution import Use

__all__ = ["PeakMemory", "Step", "peak_memory"]


@dataclass(frozen=True)
class Step:
    """Bytes that are held while one node runs: a constant part, and a part for each channel of some groups."""

    constant: float
    per_channel: Mapping[str, float]

    def at(self, widths: Widths) -> float:
        """Bytes at these widths."""
        return self.constant + sum(share * widths[group] for group, share in self.per_channel.items())

    def never_above(self, other: "Step") -> bool:
        """Whether ``other`` holds at least as much at all widths."""
        return self.constant <= other.constant and all(
            share <= other.per_channel.get(group, 0.0) for group, share in self.per_channel.items()
        )


@dataclass(frozen=True)
class PeakMemory:
    """The largest of several ``steps``, for a limit in addition to a budget."""

    steps: tuple[Step, ...]

    def predict(self, widths: Widths) -> float:
        """The largest number of bytes that are held at once."""
        return max(step.at(widths) for step in self.steps)

    def rows(self, candidates: Mapping[str, Sequence[int]]) -> Sequence[CostTables]:
        """A row for each step."""
        return [
            CostTables(
                step.constant,
                {
                    group: step.per_channel.get(group, 0.0) * np.array(widths, dtype=float)
                    for group, widths in candidates.items()
                },
                {},
            )
            for step in self.steps
        ]


def peak_memory(
    model: nn.Module, network: Network, groups: Sequence[Group], use: Use, opset: int, note: Callable[[str], None]
) -> PeakMemory:
    """The memory of ``groups`` of ``model`` (eval mode, CPU), traced as ``network``, in the precision of ``use``.

    It is derived from the file at full width and, for each group, from a file in which that group has one channel less.

    Raises:
        ModelError: the network cannot be exported.
    """
    # Networks are converted to half precision only at the end, but that changes nothing except the bytes per value.
    value_share = 0.5 if use.precision == "fp16" else 1.0
    written = replace(use, precision="int8" if use.precision == "int8" else "fp32", interface=PLAIN)
    with opened(model, network, written, opset, note) as subject:
        full = _held(subject, subject.folder / REFERENCE)
        narrower = {
            group.name: _held(subject, subject.write({**subject.full, group.name: group.width - 1}, "narrower"))
            for group in groups
            if group.width > 1
        }
    widths = {group.name: group.width for group in groups}
    steps = []
    for alive in full.alive:
        shares = {
            name: value_share * sum(full.bytes[at] - held.bytes[at] for at in alive) for name, held in narrower.items()
        }
        shares = {name: share for name, share in shares.items() if share > 0}
        constant = value_share * sum(full.bytes[at] for at in alive)
        steps.append(Step(constant - sum(share * widths[name] for name, share in shares.items()), shares))
    return PeakMemory(_largest(steps))


@dataclass(frozen=True)
class _Held:
    """Bytes of each feature map, and those that are ``alive`` at each node."""

    bytes: Sequence[int]
    alive: Sequence[tuple[int, ...]]


def _held(subject: Subject, file: Path) -> _Held:
    proto = onnx.load(file, load_external_data=False)
    extents = tensor_extents(proto, subject.use.batch)
    maps = feature_maps(proto, extents)
    alive = [
        tuple(at for at, one in enumerate(maps) if one.first <= node <= one.last)
        for node in range(len(proto.graph.node))
    ]
    return _Held([one.held_bytes(extents) for one in maps], alive)


def _largest(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Those of ``steps`` that can be the largest, without duplicates."""
    found: list[Step] = []
    for step in steps:
        if not any(step.never_above(other) for other in found):
            found = [other for other in found if not other.never_above(step)]
            found.append(step)
    return tuple(found)
