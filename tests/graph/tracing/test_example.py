"""Sizes become numbers where the forward needs one; channels whose number is read cannot be pruned."""

import pytest
import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, spread
from catro_deploy.graph.tracing.symbolic import evaluation_graph, symbolic
from tests.graph.networks import randomised
from tests.graph.size_networks import Branching, LayerWidths, Looping, Padding, Viewed

SHAPE = (3, 9, 9)


def images(count: int = 5) -> torch.Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("network", [Padding, Looping, Branching, Viewed, LayerWidths])
@pytest.mark.parametrize("trace_it", [evaluation_graph, symbolic])
def test_forwards_that_look_at_sizes_are_seen_through(network, trace_it):
    model = randomised(network())
    traced = trace_it(model, input_shape=SHAPE)
    assert traced.opaque == {}
    for count in (1, 5):
        torch.testing.assert_close(traced.module(images(count)), model(images(count)))


def test_without_a_shape_such_a_forward_cannot_be_traced():
    with pytest.raises(ModelError, match=r"\bPadding\b.*size_networks\.py:\d+"):
        evaluation_graph(Padding())


def test_the_graph_holds_what_was_read_and_no_more():
    traced = evaluation_graph(randomised(Looping()), input_shape=SHAPE)
    assert [(number.value, number.place.partition(":")[0]) for number in traced.numbers] == [(2, "size_networks.py")]
    assert not traced.module.graph.find_nodes(op="call_function", target=getattr)


class Counting(nn.Module):
    """Loops over the images, which a graph for any number of images cannot do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[place] for place in range(x.shape[0])]).mean((2, 3))


class Narrowed(nn.Module):
    """Torch checks whether a size is a number before the call is recorded in the graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.narrow(torch.roll(x, x.shape[2] // 2, 2), 0, 0, x.shape[0])
        self.text = f"{x.size(0):d} images {x}"
        return torch.narrow(x, 1, 0, x.shape[1]).mean((2, 3))


def test_what_depends_on_how_many_images_there_are():
    with pytest.raises(ModelError, match=r"\bCounting\b.*how many images"):
        evaluation_graph(Counting(), input_shape=SHAPE)


def test_what_torch_only_looks_at_is_no_constant():
    traced = evaluation_graph(Narrowed(), input_shape=SHAPE)
    assert traced.numbers == []
    for count in (1, 7):
        torch.testing.assert_close(traced.module(images(count)), Narrowed()(images(count)))


@pytest.mark.parametrize(
    ("network", "free", "held"),
    [
        (Padding, {"stem.conv", "point", "wide.conv"}, set()),
        (Looping, {"stem", "parts.0", "parts.1"}, {"inner"}),
        (Branching, {"inner", "last"}, {"stem"}),
        (Viewed, {"stem"}, {"inner"}),
        (LayerWidths, {"stem", "side"}, set()),
    ],
)
def test_numbers_that_are_of_channels_keep_them(network, free, held):
    model = randomised(network())
    groups = {group.name: group for group in trace(model, SHAPE).groups}
    assert {name for name, group in groups.items() if not group.fixed} == free
    assert {name for name, group in groups.items() if group.fixed} == held | {"fc"}


@pytest.mark.parametrize("network", [Branching, Viewed])
def test_the_reason_names_the_line(network):
    reasons = [group.fixed for group in trace(randomised(network()), SHAPE).groups]
    assert any("reads their count as a number (size_networks.py:" in reason for reason in reasons)


@pytest.mark.parametrize("network", [Padding, Looping, Branching, Viewed, LayerWidths])
@pytest.mark.parametrize("left", [1, 3])
def test_the_cut_graph_computes_what_the_cut_network_does(network, left):
    model = randomised(network())
    found = trace(model, SHAPE)
    kept = {group.name: spread(group, left) for group in found.groups if not group.fixed}
    keeps = keeps_of(found.groups, kept, found.sizes)
    graph = evaluation_graph(model, (), found.sizes, SHAPE).module
    present = {name: keep for name, keep in keeps.items() if name in dict(graph.named_modules())}
    torch.testing.assert_close(apply_keeps_(graph, present)(images()), apply_keeps_(model, keeps)(images()))
