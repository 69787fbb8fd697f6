"""The two graphs: one that computes what the original does, and one of the cut network under the same names."""

import copy

import pytest
import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.cut.surgery import apply_keeps_
from catro_deploy.graph.fx.depth import drop_branches
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.records import Keep
from tests.graph.networks import randomised
from tests.reconstruction.networks import KINDS, SHAPE, Stream, deviation, images, keeps_for, outputs


@pytest.mark.parametrize("kind", KINDS)
def test_the_original_computes_what_the_network_does_and_the_cut_what_the_pruned_one_does(kind):
    model = randomised(KINDS[kind]())
    batches, keeps = images(8), keeps_for(model)
    original = OriginalGraph.of(model, SHAPE)
    assert deviation(outputs(original.module, batches), outputs(model, batches)) < 1e-4
    pruned = apply_keeps_(copy.deepcopy(model), keeps)
    cut = original.cut(keeps)
    assert deviation(outputs(cut.module, batches), outputs(pruned, batches)) < 1e-4
    names = {node.name for node in original.module.graph.nodes}
    assert {node.name for node in cut.module.graph.nodes} == names


def test_normalisation_is_folded_and_shapes_are_of_one_image():
    original = OriginalGraph.of(randomised(Stream()), SHAPE)
    assert original.norms["stem"] == "stem_bn"
    assert len(original.norms) == 8
    assert not any(isinstance(module, nn.BatchNorm2d) for module in original.module.modules())
    assert original.shapes["stem"] == (1, 6, 8, 8)
    assert original.shapes["fc"] == (1, 4)
    assert original.opaque == {}


def test_a_cut_leaves_the_original_as_it_is():
    model = randomised(Stream())
    original = OriginalGraph.of(model, SHAPE)
    before = copy.deepcopy(original.module.state_dict())
    cut = original.cut(keeps_for(model), ["out1"])
    with torch.no_grad():
        for parameter in cut.module.parameters():
            parameter.zero_()
    assert all(torch.equal(before[name], value) for name, value in original.module.state_dict().items())


@pytest.mark.parametrize("dropped", [["out0"], ["out0", "out1"]])
def test_without_a_branch_the_stream_before_it_stands_in_for_the_sum(dropped):
    model = randomised(Stream())
    original = OriginalGraph.of(model, SHAPE)
    cut = original.cut({}, dropped)
    batches = images(8)
    assert deviation(outputs(cut.module, batches), outputs(drop_branches(model, dropped), batches)) < 1e-4
    sums = [node.name for node in original.module.graph.nodes if node.name.startswith("add")]
    assert cut.stand_ins == {"stem": sums[len(dropped) - 1]}  # of the last sum: activations in between change nothing


def test_what_is_not_there_is_refused():
    original = OriginalGraph.of(randomised(Stream()), SHAPE)
    with pytest.raises(ModelError, match=r"\bstem\b"):
        original.cut({}, ["stem"])
    with pytest.raises(ModelError, match=r"\b6\b"):
        original.cut({"stem": Keep(out=(9,))})
