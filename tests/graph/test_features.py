"""Both passes against plain forward passes of the network and of the network pruned so far."""

import copy
import errno
import os

import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy.core.scatter import Scatter, ScatterMeter
from catro_deploy.errors import ModelError, NumericsError, StorageError
from catro_deploy.graph.activations import Activations, MemoryLimit
from catro_deploy.graph.features import FeatureGraph
from catro_deploy.graph.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.trace import trace
from catro_deploy.progress import Silent
from tests.graph.networks import Branches, Residual, randomised

UNLIMITED = 2**30


def batches(classes: int = 3, each: int = 4, size: int = 8) -> list[tuple[torch.Tensor, int]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(each, 3, size, size, generator=generator) + label, label) for label in range(classes)]


def by_hook(model: nn.Module, module: str, after: nn.Module | None = None) -> Scatter:
    """Scatter of what ``module`` puts out, gathered by a forward hook."""
    meter, seen = ScatterMeter(module), []
    hook = model.get_submodule(module).register_forward_hook(lambda *call: seen.append(call[2].clone()))
    with torch.inference_mode():
        for images, label in batches():
            model(images)
            meter.add(seen.pop() if after is None else after(seen.pop()), label)
    hook.remove()
    return meter.scatter()


def same(found: Scatter, expected: Scatter) -> None:
    np.testing.assert_allclose(found.between, expected.between, rtol=1e-4)
    np.testing.assert_allclose(found.within, expected.within, rtol=1e-4)


def test_a_feature_map_is_what_the_consumers_read():
    model = randomised(Residual())
    found = FeatureGraph(model, ["stem", "inner", "outer", "wide"]).scatters(batches())
    same(found["stem"], by_hook(model, "bn", nn.ReLU()))
    same(found["inner"], by_hook(model, "inner_bn", nn.ReLU()))
    same(found["outer"], by_hook(model, "outer"))  # an addition follows, which is not this layer's alone
    same(found["wide"], by_hook(model, "wide"))


@pytest.mark.parametrize("factory", [Residual, Branches])
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
    graph.select_in_order(prunable, network.sizes, batches(), decide, limit, Silent())
    assert (limit.spilled_bytes == 0) == (limit_bytes == UNLIMITED)

    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())  # a copy was pruned
    so_far: dict[str, tuple[int, ...]] = {}
    for group in prunable:  # in the order of execution, as the plan says
        reference = apply_keeps_(copy.deepcopy(model), keeps_of(network.groups, so_far, network.sizes))
        first = group.producers[0]
        same(seen[group.name], FeatureGraph(reference, [first]).scatters(batches())[first])
        so_far[group.name] = kept[group.name]


def test_memory_is_given_back():
    limit = MemoryLimit(1000)
    values = Activations(limit)
    values.append(torch.ones(10, 5, 5))
    assert limit.spilled_bytes == 0
    values.take([0, 1])
    values.append(torch.ones(10, 10, 2))  # 800 bytes fit only because 600 of the first 1,000 came back
    assert limit.spilled_bytes == 800
    values.close()
    assert limit.take(1000)


def test_what_was_spilled_comes_back_equal(tmp_path):
    value = torch.randn(3, 4, 2, 2)
    values = Activations(MemoryLimit(0, tmp_path))
    values.append(value.clone())
    assert torch.equal(values[0], value)
    values.take([3, 1])
    assert torch.equal(values[0], value[:, [3, 1]])
    assert list(tmp_path.iterdir()) == []  # the file has no name that a killed run could leave behind


def test_a_full_disk_says_what_to_do(tmp_path, monkeypatch):
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match=r"(?s)No space left.*activation-memory"):
        Activations(MemoryLimit(0, tmp_path)).append(torch.ones(4))


def test_nan_in_a_feature_map_names_the_layer():
    model = randomised(Residual())
    model.inner.bias.data[2] = float("nan")
    with pytest.raises(NumericsError, match="inner"):
        FeatureGraph(model, ["stem", "inner"]).scatters(batches())


def test_control_flow_on_the_data_is_refused():
    class Depends(Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.mean() > 0 else super().forward(-x)

    with pytest.raises(ModelError, match=r"(?s)Depends cannot be traced.*depends on the data"):
        FeatureGraph(Depends(), ["stem"])
