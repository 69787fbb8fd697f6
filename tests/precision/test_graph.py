import copy

import onnx

from catro_deploy.precision.graph import layers_of, pieces, reading_only, sort_
from tests.precision.nets import images, network, run


def test_layers_are_named_after_their_modules():
    assert list(layers_of(network("concat").graph)) == ["stem", "left", "right", "last", "fc"]
    found = list(layers_of(network("cifar_resnet20").graph))
    assert (found[0], found[1], found[-1]) == ("conv1", "layer1.0.conv1", "fc")
    assert len(found) == len(set(found)) == 22


def test_operators_between_layers_belong_to_the_layers_that_they_read():
    graph = network("concat").graph
    types = {node.name: node.op_type for node in graph.node}

    def reading(*layers):
        return [types[name] for name in reading_only(graph, layers)]

    assert "Concat" in reading("left", "right")
    assert "Concat" not in reading("left")
    assert "Concat" not in reading("stem", "left", "last")
    assert reading() == []
    everything = [node.name for node in graph.node if node.name not in layers_of(graph).values()]
    assert reading_only(graph, list(layers_of(graph))) == everything


def test_nodes_in_any_order_are_put_into_theirs_and_idle_ones_go():
    proto = copy.deepcopy(network("concat"))
    nodes = list(reversed(proto.graph.node))
    idle = onnx.helper.make_node("Relu", [nodes[-1].output[0]], ["nobody reads it"])
    del proto.graph.node[:]
    proto.graph.node.extend([idle, *nodes])
    proto.graph.initializer.append(onnx.numpy_helper.from_array(images(1), "nor this"))
    sort_(proto.graph)
    onnx.checker.check_model(proto, full_check=True)
    assert len(proto.graph.node) == len(nodes)
    assert "nor this" not in {tensor.name for tensor in proto.graph.initializer}
    assert (run(proto, images(2)) == run(network("concat"), images(2))).all()


def test_images_come_as_the_network_takes_them():
    assert [len(piece) for piece in pieces(network("concat"), images(3))] == [1, 1, 1]
