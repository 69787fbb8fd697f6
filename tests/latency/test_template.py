"""Networks that are cut from one export are those that are exported after cutting."""

import copy
from collections import Counter

import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_
from catro_deploy.graph.onnx.export import check_agreement
from catro_deploy.graph.onnx.skeleton import Skeleton
from catro_deploy.graph.resizing import resizing
from catro_deploy.latency import template
from catro_deploy.latency.candidate import candidate_files
from catro_deploy.latency.template import keeps_at, template_of, with_noise
from catro_deploy.transports.execution import Use
from tests.latency.profile.quick import SHAPE, tiny_network
from tests.latency.profile.test_subject import Summing
from tests.stages.conftest import lively


def use_in(precision, batch=1):
    return Use("x86-cpu", "onnxruntime", precision, threads=1, batch=batch)


def half(network):
    return {group.name: group.width // 2 for group in network.groups if not group.fixed}


def graph_of(file):
    """Each node's operator and attributes, and how many constants there are of each shape."""
    graph = onnx.load(file).graph
    nodes = [(node.op_type, tuple(sorted(map(str, node.attribute)))) for node in graph.node]
    return nodes, Counter((tuple(tensor.dims), tensor.data_type) for tensor in graph.initializer)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("size", [None, (8, 8)])
def test_the_file_has_the_nodes_and_constants_of_an_export(precision, batch, size):
    model = lively() if size is None else resizing(lively(), size)
    network = trace(model, SHAPE)
    template, widths = template_of(model, network, 18, dynamic_batch=batch > 1), half(network)
    assert template is not None
    exported = apply_keeps_(copy.deepcopy(model), keeps_at(network, widths))
    with candidate_files(use_in(precision, batch), 18, SHAPE) as files:
        assert graph_of(files.write(template.at(widths), "cut", precision)) == graph_of(
            files.write(exported, "exported", precision)
        )


@pytest.fixture(scope="module")
def tiny():
    model = tiny_network()
    network = trace(model, SHAPE)
    return with_noise(model), network, template_of(model, network, 18, dynamic_batch=False)


@settings(max_examples=20)
@given(st.data())
def test_it_computes_what_the_cut_network_does_at_all_widths(tiny, tmp_path_factory, data):
    noisy, network, template = tiny
    widths = {g.name: data.draw(st.integers(1, g.width), g.name) for g in network.groups if not g.fixed}
    file = tmp_path_factory.mktemp("cut") / "cut.onnx"
    onnx.save(template.at(widths), file)
    expected = apply_keeps_(copy.deepcopy(noisy), keeps_at(network, widths))
    check_agreement(expected, torch.randn(1, *SHAPE), file, file.name)


def test_there_is_none_if_what_is_cut_computes_something_else(monkeypatch):
    cut = Skeleton.cut

    def doubled(self, keeps):
        proto = cut(self, keeps)
        weight = proto.graph.initializer[0]
        weight.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(weight), weight.name))
        return proto

    monkeypatch.setattr(Skeleton, "cut", doubled)
    assert template_of(lively(), trace(lively(), SHAPE), 18, dynamic_batch=False) is None


def test_there_is_none_if_the_cut_network_cannot_be_run(monkeypatch):
    def failing(model, *others):
        raise RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")

    monkeypatch.setattr(template, "check_agreement", failing)
    assert template_of(lively(), trace(lively(), SHAPE), 18, dynamic_batch=False) is None


def test_there_is_none_of_a_network_whose_shapes_are_not_known():
    model = Summing(3).eval()
    assert template_of(model, trace(model, SHAPE), 18, dynamic_batch=False) is None
