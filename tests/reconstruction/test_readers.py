"""What reads a group, and what it can do without, against sums over rows that are computed here."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import keeps_of, masked
from catro_deploy.progress import Silent
from catro_deploy.reconstruction import readers
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.least_squares import RIDGE
from catro_deploy.reconstruction.readers import Readers, readers_of
from catro_deploy.reconstruction.rows import layer_of, set_weight_matrix_, weight_matrix
from tests.graph.networks import randomised
from tests.reconstruction.networks import KINDS, SHAPE, Stream, deviation, free_groups, images, outputs


class TwoWays(nn.Module):
    """One layer reads a map and its negative together."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(8, 5, 2), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.fc(torch.relu(self.second(torch.cat([torch.relu(x), torch.relu(-x)], 1))).mean((2, 3)))


@pytest.mark.parametrize("kind", [*KINDS, "two ways"])
def test_the_columns_of_a_channel_are_all_that_reads_it(kind):
    """Zeros in them have the same effect as masking the channel, if only such layers read it."""
    model = randomised((KINDS | {"two ways": TwoWays})[kind]())
    network, original = trace(model, SHAPE), OriginalGraph.of(model, SHAPE)
    batches, compared = images(4), 0
    for group in free_groups(network):
        found = readers_of(group, original)
        reading = {slot.module for slot in group.slots if slot.axis == "in"}
        if {reader.layer for reader in found} != reading:
            continue  # a grouped layer reads it as well
        keeps = keeps_of(network.groups, {group.name: range(1, group.width)}, network.sizes)
        cut = copy.deepcopy(original.module)
        for reader in found:
            layer = layer_of(cut, reader.layer)
            matrix = weight_matrix(layer).clone()
            matrix[0, reader.columns[0]] = 0
            set_weight_matrix_(layer, matrix)
        assert deviation(outputs(cut, batches), outputs(masked(model, keeps), batches)) < 1e-4
        compared += 1
    assert compared


def test_readers_are_the_layers_that_mix_the_channels():
    network, original = trace(Stream(), SHAPE), OriginalGraph.of(Stream(), SHAPE)
    by_group = {group.name: [reader.layer for reader in readers_of(group, original)] for group in network.groups}
    assert by_group["stem"] == ["in0", "in1", "in2", "down"]
    assert by_group["in1"] == ["out1"]
    assert by_group["fc"] == []
    model = KINDS["depthwise"]()
    names = [[r.layer for r in readers_of(g, OriginalGraph.of(model, SHAPE))] for g in trace(model, SHAPE).groups]
    assert names == [["6"], ["10"], []]


def measured(original: OriginalGraph, layer: str, batches: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Centred, damped Gram matrix of the rows that a convolution reads, and their mean."""
    module = original.module.get_submodule(layer)
    seen: list[torch.Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    outputs(original.module, batches)
    handle.remove()
    value = torch.cat(seen).double()
    rows = functional.unfold(value, module.kernel_size, module.dilation, module.padding, module.stride)
    rows = rows.movedim(1, 2).flatten(0, 1)
    gram = (rows - rows.mean(0)).T @ (rows - rows.mean(0))
    return gram + RIDGE * gram.diagonal().mean() * torch.eye(len(gram)), rows.mean(0)


@pytest.mark.parametrize("gone", [[2], [0, 1, 4]])
def test_a_refit_is_the_best_without_the_channels_that_are_gone(gone):
    original, batches = OriginalGraph.of(randomised(Stream()), SHAPE), images(40)
    group = next(group for group in trace(Stream(), SHAPE).groups if group.name == "in1")
    (reader,) = readers_of(group, original)
    weights, shift = Readers(original, ["out1"], batches, Silent()).refit(reader, gone)
    gram, mean = measured(original, "out1", batches)
    before = weight_matrix(layer_of(original.module, "out1"))[0].double()
    kept = torch.tensor([column for column in range(45) if column // 9 not in gone])
    expected = torch.zeros_like(before)
    expected[kept] = torch.linalg.solve(gram[kept][:, kept], gram[kept] @ before)
    torch.testing.assert_close(weights, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(shift, mean @ (before - expected), rtol=1e-3, atol=1e-3)


def test_without_all_channels_the_bias_is_what_is_left():
    original, batches = OriginalGraph.of(randomised(Stream()), SHAPE), images(40)
    group = next(group for group in trace(Stream(), SHAPE).groups if group.name == "in1")
    (reader,) = readers_of(group, original)
    weights, shift = Readers(original, ["out1"], batches, Silent()).refit(reader, range(5))
    assert not weights.any()
    assert shift.isfinite().all()


def test_large_layers_are_looked_at_in_blocks(monkeypatch):
    original, batches = OriginalGraph.of(randomised(Stream()), SHAPE), images(40)
    group = next(group for group in trace(Stream(), SHAPE).groups if group.name == "in1")
    (reader,) = readers_of(group, original)
    monkeypatch.setattr(readers, "BLOCK_COLUMNS", 20)  # two channels of nine columns
    grams = Readers(original, ["out1"], batches, Silent())
    consumers = grams.consumers([reader])
    assert [one.channels.tolist() for one in consumers] == [[0, 1], [2, 3], [4]]
    assert len({one.scale for one in consumers}) == 1
    weights, shift = grams.refit(reader, [0, 2])
    _, mean = measured(original, "out1", batches)
    before = weight_matrix(layer_of(original.module, "out1"))[0].double()
    # Channel 3 makes up for 2, which is in its block; 4, in a block without losses, stays as it is.
    assert not weights[[*range(9), *range(18, 27)]].any()
    assert not torch.equal(weights[27:36], before[27:36])
    assert torch.equal(weights[36:], before[36:])
    torch.testing.assert_close(shift, mean @ (before - weights), rtol=1e-3, atol=1e-3)


def test_only_some_positions_are_looked_at(monkeypatch):
    monkeypatch.setattr(readers, "POSITIONS", 3)
    original = OriginalGraph.of(randomised(Stream()), SHAPE)
    assert Readers(original, ["out1", "fc"], images(40), Silent())._moments["out1"][0].count == 3 * 40
