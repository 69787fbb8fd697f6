"""Values at some stops of a graph equal those of a whole run."""

import pytest
import torch
from torch import fx

from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.walk import Walk
from tests.graph.networks import Branches, randomised
from tests.graph.residual import Written
from tests.reconstruction.networks import SHAPE, Stream, images, noted_images


class Noted(fx.Interpreter):
    """Stores a copy of every value."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.seen: dict[fx.Node, object] = {}

    def run_node(self, node: fx.Node) -> object:
        value = super().run_node(node)
        self.seen[node] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


@pytest.mark.parametrize("limit", [2**30, 0])
@pytest.mark.parametrize("network", [Stream, Branches, Written])
def test_stops_hold_what_a_whole_run_holds(network, limit):
    module = OriginalGraph.of(randomised(network()), SHAPE).module
    batches = images(5, batch=3)
    calls = [node for node in module.graph.nodes if node.op == "call_module"]
    # The input of each layer and, at every other stop, also that of the first layer.
    needed = [(call.all_input_nodes[0], *([calls[0].all_input_nodes[0]] * (at % 2))) for at, call in enumerate(calls)]
    memory = MemoryLimit(limit)
    walk = Walk(module, needed, batches, memory)
    with torch.inference_mode():
        expected = []
        for batch in batches:
            noted = Noted(module)
            noted.run(batch)
            expected.append(noted.seen)
        for stop, nodes in enumerate(needed):
            for values, wanted in zip(walk.values(stop), expected, strict=True):
                assert set(values) == set(nodes)
                for node in values:
                    torch.testing.assert_close(values[node], wanted[node], rtol=0, atol=0)
    walk.close()
    assert memory.left_bytes == limit


def test_no_node_runs_twice(monkeypatch):
    module = OriginalGraph.of(randomised(Stream()), SHAPE).module
    calls = [node for node in module.graph.nodes if node.op == "call_module"]
    ran: list[str] = []
    run_node = fx.Interpreter.run_node
    monkeypatch.setattr(fx.Interpreter, "run_node", lambda self, node: ran.append(node.name) or run_node(self, node))
    walk = Walk(module, [(call,) for call in calls], images(2), MemoryLimit(2**30))
    with torch.inference_mode():
        for stop in range(len(calls)):
            list(walk.values(stop))
    walk.close()
    assert len(ran) == len(set(ran))
    assert set(ran) >= {call.name for call in calls}


def test_weights_that_change_between_stops_count_from_there_on():
    module = OriginalGraph.of(randomised(Stream()), SHAPE).module
    nodes = {node.name: node for node in module.graph.nodes}
    batches = images(4)
    walk = Walk(module, [(nodes["stem"],), (nodes["in0"],)], batches, MemoryLimit(2**30))
    with torch.inference_mode():
        (stem,) = [values[nodes["stem"]] for values in walk.values(0)]
        module.get_submodule("in0").weight.mul_(3)
        (inner,) = [values[nodes["in0"]] for values in walk.values(1)]
        torch.testing.assert_close(inner, module.get_submodule("in0")(torch.relu(stem)), rtol=0, atol=0)
    walk.close()


def test_images_are_put_together_only_where_the_network_reads_them():
    """Normalising them at every stop would take longer than the layers."""
    module = OriginalGraph.of(randomised(Stream()), SHAPE).module
    batches, read = noted_images([3, 2])
    calls = [node for node in module.graph.nodes if node.op == "call_module"]
    walk = Walk(module, [(call,) for call in calls], batches, MemoryLimit(2**30))
    with torch.inference_mode():
        for stop in range(len(calls)):
            list(walk.values(stop))
    walk.close()
    assert read == [3, 2]
