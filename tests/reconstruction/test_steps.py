"""Which layers are solved together, for which target, and which are left."""

import pytest
import torch
from torch import nn

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import keeps_of
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.steps import steps_of
from catro_deploy.records import Keep
from tests.graph.networks import randomised
from tests.reconstruction.networks import KINDS, SHAPE, Stream, keeps_for


def found(model: nn.Module, kept: dict[str, list[int]] | None = None, dropped: tuple[str, ...] = ()) -> tuple:
    """The steps as (layers, given, target), and the layers that are left, when groups keep ``kept``."""
    network = trace(model, SHAPE)
    original = OriginalGraph.of(model, SHAPE)
    cut = original.cut(keeps_of(network.groups, kept or {}, network.sizes), dropped)
    steps, left = steps_of(original, cut)
    names = [(tuple(str(n.target) for n in s.layers), tuple(n.name for n in s.given), s.target) for s in steps]
    return names, left


def sums() -> list[str]:
    graph = OriginalGraph.of(Stream(), SHAPE).module.graph
    return [node.name for node in graph.nodes if node.name.startswith("add")]


def test_only_what_the_cut_made_a_difference_to_is_solved():
    assert found(randomised(Stream())) == ([], {})
    _, second, third = sums()
    steps, left = found(randomised(Stream()), {"in1": [0, 2]})
    assert [step[0] for step in steps] == [("out1",), ("in2",), ("out2", "down"), ("fc",)]
    assert (steps[0][2], steps[2][2]) == (second, third)
    assert left == {}


def test_a_branch_aims_at_the_sum_less_the_stream_and_a_projection_is_solved_with_it():
    first, _, third = sums()
    steps, _ = found(randomised(Stream()), {"stem": [0, 2, 3], "in0": [1, 2]})
    by_layers = {layers: (given, target) for layers, given, target in steps}
    assert list(by_layers) == [("in0",), ("out0",), ("in1",), ("out1",), ("in2",), ("out2", "down"), ("fc",)]
    assert by_layers["out0",] == (("relu",), first)
    assert by_layers["out2", "down"] == ((), third)
    assert by_layers["in1",] == ((), "in1")


@pytest.mark.parametrize("dropped", [("out0",), ("out0", "out1")])
def test_where_a_branch_is_gone_the_layer_before_aims_at_the_stream_behind_it(dropped):
    steps, _ = found(randomised(Stream()), dropped=dropped)
    assert steps[0] == (("stem",), (), sums()[len(dropped) - 1])


@pytest.mark.parametrize("kind", KINDS)
def test_steps_need_only_what_earlier_ones_made(kind):
    model = randomised(KINDS[kind]())
    original = OriginalGraph.of(model, SHAPE)
    cut = original.cut(keeps_for(model))
    steps, _ = steps_of(original, cut)
    order = list(cut.module.graph.nodes)
    done: set[torch.fx.Node] = set()
    for step in steps:
        behind = set()  # everything from which the needed values are computed
        waiting = list(step.needed)
        while waiting:
            node = waiting.pop()
            if node not in behind:
                behind.add(node)
                waiting += node.all_input_nodes
        later = {layer for other in steps for layer in other.layers} - done
        assert not behind & later - {node for node in step.given if node in step.layers}
        done |= set(step.layers)
    solved = [layer for step in steps for layer in step.layers]
    assert len(solved) == len(set(solved))
    assert set(solved) <= set(order)


class Twice(nn.Module):
    """One convolution is called twice, and another has a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.same = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.hooked, self.fc = nn.Conv2d(4, 5, 1), nn.Linear(5, 3)
        self.hooked.register_forward_hook(lambda *call: call[2] * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.same(torch.relu(self.same(torch.relu(self.first(x)))))
        return self.fc(torch.relu(self.hooked(x)).mean((2, 3)))


def test_what_cannot_be_solved_is_left_and_said_why():
    model = randomised(Twice())
    original = OriginalGraph.of(model, SHAPE)
    keep = (0, 1, 3)
    cut = original.cut({"first": Keep(keep), "same": Keep(keep, keep), "hooked": Keep(None, keep)})
    steps, left = steps_of(original, cut)
    assert [str(node.target) for step in steps for node in step.layers] == ["fc"]
    assert left["same"] == "its weight is used in several places"
    assert left["hooked"] == "a Conv2d may do more than a Conv2d"
    assert set(left) == {"same", "hooked"}


def test_a_grouped_layer_in_a_sum_with_another_is_solved_before_and_given():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.plain = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 4, 1)
            self.mid, self.grouped = nn.Conv2d(6, 4, 1), nn.Conv2d(4, 4, 3, padding=1, groups=4)
            self.fc = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.stem(x))
            return self.fc(torch.relu(self.plain(x) + self.grouped(self.mid(x))).mean((2, 3)))

    steps, _ = found(randomised(Both()), {"stem": [0, 2, 5]})
    by_layers = {layers: (given, target) for layers, given, target in steps}
    assert list(by_layers) == [("mid",), ("grouped",), ("plain",), ("fc",)]
    assert by_layers["plain",] == (("grouped",), "add")
    assert by_layers["grouped",] == ((), "grouped")
