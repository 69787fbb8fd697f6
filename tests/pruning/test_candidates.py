"""Candidates are cut from as few exports as possible."""

import pytest
import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.latency import template
from catro_deploy.latency.candidate import candidate_files
from catro_deploy.latency.template import Template
from catro_deploy.pruning.candidates import Candidates
from catro_deploy.pruning.cutting import Classifier, at_input_size
from catro_deploy.pruning.scoring import Scored
from catro_deploy.pruning.shared import Shared
from catro_deploy.pruning.solvers import Problem
from catro_deploy.runtimes import open_runner
from catro_deploy.settings import PruneSettings
from catro_deploy.transports.execution import Use
from tests.latency.profile.quick import SHAPE
from tests.latency.profile.test_subject import Summing
from tests.stages.conftest import lively

USE = Use("x86-cpu", "onnxruntime", "fp32", threads=1, batch=1)


def candidates(model, size=None):
    whole = Classifier(model, SHAPE, "fc", ("a", "b", "c"), (0, 1, 2), "", (), ())
    original = at_input_size(whole, size)
    network = trace(original.model, SHAPE)
    groups = tuple(group for group in network.groups if not group.fixed)
    branches = dict.fromkeys(find_branches(original.model, network), 0.0)
    problem = Problem(network, Scored(groups, {}, {}, {}), PruneSettings(), branches)
    return Candidates(original, network, problem, Shared()), {group.name: group.width for group in groups}


@pytest.fixture
def exports(monkeypatch):
    """One entry for each export."""
    found, export = [], template.export_onnx

    def counted(model, *arguments, **options):
        found.append(model)
        export(model, *arguments, **options)

    monkeypatch.setattr(template, "export_onnx", counted)
    return found


def test_networks_with_the_same_branches_are_cut_from_one_export(exports):
    made, full = candidates(lively())
    first = next(iter(made.problem.worths))
    without_first = full | dict.fromkeys(first.groups, 0)
    halved = {name: width // 2 for name, width in full.items()}
    with candidate_files(USE, 18, SHAPE) as files:
        counts = []
        for widths in (full, halved, without_first, halved | dict.fromkeys(first.groups, 0), halved):
            file = files.write(made.to_time(widths, None, files), "pruned", "fp32")
            counts.append(len(exports))
            with open_runner("onnxruntime", file, 1) as runner:
                found = runner.infer(torch.zeros(1, *SHAPE).numpy())
            assert found.shape == made.module(widths)(torch.zeros(1, *SHAPE)).shape
    assert counts == [1, 1, 2, 2, 2]


def test_at_each_input_size(exports):
    made, full = candidates(lively(), (8, 8))
    with candidate_files(USE, 18, SHAPE) as files:
        resized, given = (made.to_time(full, size, files) for size in ((8, 8), None))
    assert ["Resize" in {node.op_type for node in one.graph.node} for one in (resized, given)] == [True, False]
    assert len(exports) == 2


def test_a_network_that_cannot_be_cut_in_its_graph_is_a_module():
    made, full = candidates(Summing(3).eval())
    with candidate_files(USE, 18, SHAPE) as files:
        assert isinstance(made.to_time(full, None, files), nn.Module)


def test_so_is_one_whose_shapes_are_not_known_at_these_widths(monkeypatch):
    def at(self, widths):
        raise ModelError("The network has an operator whose shapes at other widths are not known.")

    monkeypatch.setattr(Template, "at", at)
    made, full = candidates(lively())
    with candidate_files(USE, 18, SHAPE) as files:
        assert isinstance(made.to_time(full, None, files), nn.Module)
