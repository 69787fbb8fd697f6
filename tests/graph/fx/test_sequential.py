"""Sequential decisions, each against a pass through the network pruned so far."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy.catro.scatter import Scatter
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.fx.activations import Activations, MemoryLimit
from catro_deploy.graph.fx.features import FeatureGraph
from catro_deploy.graph.fx.sequential import select_in_order
from catro_deploy.progress import Silent
from tests.graph.fx.test_features import batches, same
from tests.graph.networks import Branches, Residual, randomised
from tests.graph.opaque import Halves, Shared

UNLIMITED = 2**30


class Overwriting(nn.Module):
    """A residual block that saves memory: its input is overwritten once it has been read."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.inner = nn.Conv2d(8, 6, 3, padding=1)
        self.outer = nn.Conv2d(6, 8, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.stem(x))
        out = self.outer(self.act(self.inner(x)))
        out += x
        x.mul_(0.5)
        return self.fc((self.act(out) + x).mean((2, 3)))


class Bottleneck(nn.Module):
    """A residual block of three convolutions around few channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.first = nn.Conv2d(16, 4, 1)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.third = nn.Conv2d(4, 16, 1)
        self.fc = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        inner = torch.relu(self.second(torch.relu(self.first(x))))
        return self.fc(torch.relu(x + self.third(inner)).mean((2, 3)))


class Counted(list):
    """Batches that count how often any of them is looked up."""

    lookups = 0

    def __getitem__(self, place):
        self.lookups += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("factory", [Residual, Branches, Shared, Halves, Overwriting])
@pytest.mark.parametrize("limit_bytes", [UNLIMITED, 5000, 0])
def test_each_group_is_decided_on_inputs_that_are_pruned_already(factory, limit_bytes, tmp_path):
    model = randomised(factory())
    before = copy.deepcopy(model.state_dict())
    network = trace(model, (3, 8, 8))
    prunable = [group for group in network.groups if not group.fixed]
    pick = np.random.default_rng(0)
    kept: dict[str, tuple[int, ...]] = {}
    seen: dict[str, Scatter] = {}

    def decide(group, scatter):
        seen[group.name] = scatter
        kept[group.name] = tuple(sorted(pick.choice(group.width, max(1, group.width // 2), replace=False)))
        return kept[group.name]

    limit = MemoryLimit(limit_bytes, tmp_path)
    graph = FeatureGraph(model, [p for group in prunable for p in group.producers])
    select_in_order(graph, prunable, network.sizes, batches(), decide, limit, Silent())
    assert (limit.file.written_bytes == 0) == (limit_bytes == UNLIMITED)

    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())  # a copy was pruned
    so_far: dict[str, tuple[int, ...]] = {}
    for group in prunable:  # in the order of execution, as in the plan
        reference = apply_keeps_(copy.deepcopy(model), keeps_of(network.groups, so_far, network.sizes))
        first = group.producers[0]
        same(seen[group.name], FeatureGraph(reference, [first]).scatters(batches())[first])
        so_far[group.name] = kept[group.name]


def test_images_are_looked_up_until_a_checkpoint_lies_behind_all_that_reads_them():
    model = randomised(Residual())
    network = trace(model, (3, 8, 8))
    prunable = [group for group in network.groups if not group.fixed]
    graph = FeatureGraph(model, [p for group in prunable for p in group.producers])
    images, lookups = Counted(batches()), []

    def decide(group, scatter):
        lookups.append(images.lookups)
        return range(group.width - 1)

    select_in_order(graph, prunable, network.sizes, images, decide, MemoryLimit(UNLIMITED), Silent())
    assert lookups[0] >= len(images)
    assert len(set(lookups)) == 1  # the stem's own map is the first checkpoint


def test_the_input_of_a_block_is_not_loaded_where_only_its_inner_layers_run(monkeypatch):
    """It is the largest value of a bottleneck, and after the first convolution only the addition reads it."""
    loaded: list[int] = []
    load = Activations.__getitem__

    def noted(self, batch):
        value = load(self, batch)
        loaded.append(value.shape[1])
        return value

    def decide(group, scatter):
        seen[group.name] = set(loaded)
        loaded.clear()
        return range(group.width - 1)

    seen: dict[str, set[int]] = {}
    model = randomised(Bottleneck())
    network = trace(model, (3, 8, 8))
    prunable = [group for group in network.groups if not group.fixed]
    graph = FeatureGraph(model, [p for group in prunable for p in group.producers])
    monkeypatch.setattr(Activations, "__getitem__", noted)
    select_in_order(graph, prunable, network.sizes, batches(), decide, MemoryLimit(UNLIMITED), Silent())
    assert seen == {"stem": set(), "first": {15}, "second": {3}}
