"""Sequential decisions, each against a pass through the network pruned so far."""

import copy

import numpy as np
import pytest
import torch

from catro_deploy.core.scatter import Scatter
from catro_deploy.graph.activations import MemoryLimit
from catro_deploy.graph.features import FeatureGraph
from catro_deploy.graph.sequential import select_in_order
from catro_deploy.graph.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.trace import trace
from catro_deploy.progress import Silent
from tests.graph.networks import Branches, Residual, randomised
from tests.graph.opaque import Halves, Shared
from tests.graph.test_features import batches, same

UNLIMITED = 2**30


@pytest.mark.parametrize("factory", [Residual, Branches, Shared, Halves])
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
    assert (limit.spilled_bytes == 0) == (limit_bytes == UNLIMITED)

    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())  # a copy was pruned
    so_far: dict[str, tuple[int, ...]] = {}
    for group in prunable:  # in the order of execution, as the plan says
        reference = apply_keeps_(copy.deepcopy(model), keeps_of(network.groups, so_far, network.sizes))
        first = group.producers[0]
        same(seen[group.name], FeatureGraph(reference, [first]).scatters(batches())[first])
        so_far[group.name] = kept[group.name]
