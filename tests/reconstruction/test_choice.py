"""Which channels are removed, based on what reads them and on what the wanted classes' logits depend on."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.progress import Silent
from catro_deploy.reconstruction import choice, readers
from catro_deploy.reconstruction.choice import Eliminations
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.least_squares import RIDGE
from catro_deploy.reconstruction.rows import layer_of, weight_matrix
from catro_deploy.records import Group
from tests.graph.networks import randomised
from tests.reconstruction.networks import KINDS, SHAPE, Stream, copy_channel_, free_groups, images, outputs


def made(model: nn.Module, criterion: str = "obs", count: int = 60) -> tuple[Eliminations, list[Group], OriginalGraph]:
    original, groups = OriginalGraph.of(model, SHAPE), free_groups(trace(model, SHAPE))
    return Eliminations(original, groups, images(count), criterion, Silent()), groups, original


def order(model: nn.Module, criterion: str) -> list[int]:
    """Channels of the first group, in the order of their removal."""
    found, (group, *_), _ = made(model, criterion)
    kept = [set(found.kept(group, width)) for width in range(group.width, 0, -1)]
    return [(more - fewer).pop() for more, fewer in itertools.pairwise(kept)]


def colours(head: list[list[float]], between: list[list[float]] | None = None) -> nn.Module:
    """Three channels, the colours; ``head`` has their columns in the last layer, or those of the layer ``between``."""
    layers = [nn.Conv2d(3, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    layers += [nn.Linear(len(matrix), len(matrix[0])) for matrix in (between, head) if matrix]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(3)[:, :, None, None])
        for layer, matrix in zip(layers[3:], (m for m in (between, head) if m), strict=True):
            layer.weight.copy_(torch.tensor(matrix).T)
    return model


def test_what_adds_the_same_to_all_logits_goes_first_by_catro_and_last_by_obs():
    model = colours([[5.0, 5.0, 5.0, 5.0], [1.0, -1.0, 0.0, 0.0], [2.0, 0.0, -2.0, 0.0]])
    assert order(model, "catro") == [0, 1]
    assert order(model, "obs") == [1, 2]


def test_what_the_logits_do_not_depend_on_goes_first_by_catro_however_large_it_is():
    between = [[9.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]
    head = [[0.0, 0.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0], [1.0, 0.0, -1.0, 0.0]]
    assert order(colours(head, between), "catro") == [0, 1]
    assert order(colours(head, between), "obs") == [1, 2]


def brute_force(original: OriginalGraph, layer: str, columns: torch.Tensor, gone: list[int]) -> float:
    """Squared error of the best weights of a layer without ``gone``, relative to the variation of its outputs."""
    module = layer_of(original.module, layer)
    seen: list[torch.Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    outputs(original.module, images(60))
    handle.remove()
    value = torch.cat(seen).double()
    if isinstance(module, nn.Linear):
        rows = value
    else:
        rows = functional.unfold(value, module.kernel_size, module.dilation, module.padding, module.stride)
        rows = rows.movedim(1, 2).flatten(0, 1)
    gram = (rows - rows.mean(0)).T @ (rows - rows.mean(0))
    before = weight_matrix(module)[0].double()
    total = float((before * (gram @ before)).sum())
    gram = gram + RIDGE * gram.diagonal().mean() * torch.eye(len(gram))
    lost = set(columns[gone].flatten().tolist())
    kept = torch.tensor([column for column in range(len(gram)) if column not in lost])
    moved = before.clone()
    moved[kept] -= torch.linalg.solve(gram[kept][:, kept], gram[kept] @ before)
    return float((moved * (gram @ moved)).sum()) / total


def test_errors_of_coupled_layers_add_up_and_the_cheapest_channel_goes_first():
    found, groups, original = made(randomised(Stream()))
    group = next(group for group in groups if group.name == "stem")
    assert len(found.readers["stem"]) == 4

    def total(gone: list[int]) -> float:
        return sum(brute_force(original, reader.layer, reader.columns, gone) for reader in found.readers["stem"])

    costs = [total([channel]) for channel in range(6)]
    cheapest = min(range(6), key=costs.__getitem__)
    assert found.kept(group, 5) == tuple(channel for channel in range(6) if channel != cheapest)
    assert found.error(group, 5) == pytest.approx(costs[cheapest], rel=1e-3)
    gone = [channel for channel in range(6) if channel not in found.kept(group, 3)]
    assert found.error(group, 3) == pytest.approx(total(gone), rel=1e-3)


@pytest.mark.parametrize("criterion", ["catro", "obs"])
@pytest.mark.parametrize("kind", KINDS)
def test_widths_are_nested_and_errors_rise_as_they_fall(kind, criterion):
    found, groups, _ = made(randomised(KINDS[kind]()), criterion)
    for group in groups:
        if not found.readers[group.name]:
            assert found.kept(group, 1) is None
            continue
        kept = [set(found.kept(group, width)) for width in range(1, group.width + 1)]
        assert [len(channels) for channels in kept] == list(range(1, group.width + 1))
        assert all(few < many for few, many in itertools.pairwise(kept))
        errors = [found.error(group, width) for width in range(1, group.width + 1)]
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] == 0


@pytest.mark.parametrize("criterion", ["catro", "obs"])
def test_one_of_two_copies_goes_first(criterion):
    model = randomised(Stream())
    group = next(group for group in trace(model, SHAPE).groups if group.name == "stem")
    copy_channel_(model, group, 1, 4)
    found, _, _ = made(model, criterion)
    assert len({1, 4} & set(found.kept(group, 5))) == 1
    assert found.error(group, 5) < 0.05 * found.error(group, 4)  # the cost of the ridge


@pytest.mark.parametrize("criterion", ["catro", "obs"])
def test_in_blocks_all_widths_can_still_be_had(monkeypatch, criterion):
    monkeypatch.setattr(readers, "BLOCK_COLUMNS", 20)
    found, groups, original = made(randomised(Stream()), criterion)
    for group in groups:
        assert [len(found.kept(group, width)) for width in (1, 3, group.width)] == [1, 3, group.width]
        assert 0 < found.error(group, 2) < float("inf")
        with found.cut_alone_(group, 2):
            assert outputs(original.module, images(4)).isfinite().all()


@pytest.mark.parametrize("kind", ["stream", "without norms", "flattened", "concatenation with a gate"])
def test_cut_alone_readers_do_without_the_channels_and_are_as_before_afterwards(kind):
    found, groups, original = made(randomised(KINDS[kind]()))
    before = copy.deepcopy(original.module.state_dict())
    batches = images(4)
    for group in groups:
        if not found.readers[group.name]:
            continue
        width = max(1, group.width // 2)
        gone = [channel for channel in range(group.width) if channel not in found.kept(group, width)]
        with found.cut_alone_(group, width):
            for reader in found.readers[group.name]:
                matrix = weight_matrix(layer_of(original.module, reader.layer))[0]
                assert not matrix[reader.columns[gone].flatten()].any()
            assert outputs(original.module, batches).isfinite().all()
        after = original.module.state_dict()
        assert list(after) == list(before)
        assert all(torch.equal(before[name], value) for name, value in after.items())


def test_an_error_inside_leaves_no_trace():
    found, groups, original = made(randomised(Stream()))
    before = copy.deepcopy(original.module.state_dict())
    biases = {name: module.bias for name, module in original.module.named_modules() if isinstance(module, nn.Conv2d)}
    with pytest.raises(KeyboardInterrupt), found.cut_alone_(groups[0], 2):
        raise KeyboardInterrupt
    assert all(torch.equal(before[name], value) for name, value in original.module.state_dict().items())
    assert all(original.module.get_submodule(name).bias is bias for name, bias in biases.items())


def test_alone_at_full_width_nothing_changes():
    found, groups, original = made(randomised(Stream()))
    batches = images(4)
    expected = outputs(original.module, batches)
    for group in groups:
        with found.cut_alone_(group, group.width):
            torch.testing.assert_close(outputs(original.module, batches), expected)


def test_released_gram_matrices_are_measured_again_only_when_an_order_is_not_known(monkeypatch):
    measured = []

    class Counted(readers.Readers):
        def __init__(self, *args: object) -> None:
            measured.append(1)
            super().__init__(*args)

    monkeypatch.setattr(choice, "Readers", Counted)
    found, (first, second, *_), _ = made(randomised(Stream()))
    assert found.kept(first, first.width) == tuple(range(first.width))
    assert len(measured) == 0
    before = found.kept(first, 2), found.error(first, 2)
    found.release()
    assert (found.kept(first, 2), found.error(first, 2)) == before
    assert len(measured) == 1
    assert found.kept(second, 1) == made(randomised(Stream()))[0].kept(second, 1)
    assert len(measured) == 3
