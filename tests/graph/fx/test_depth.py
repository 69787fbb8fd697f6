"""Without a branch, the network computes the same as the whole one with that branch's last output set to zero."""

import copy
import re

import onnx
import pytest
import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import list_layers, trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, masked
from catro_deploy.graph.fx.depth import drop_branches, find_branches
from catro_deploy.graph.fx.features import FeatureGraph
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.models import build_model
from tests.graph.networks import Residual, randomised
from tests.graph.opaque import ByCount
from tests.graph.residual import Written, assert_same, found, images, lively

NAMED = {
    "cifar_resnet20": 9,
    "cifar_resnet56": 27,
    "torchvision:resnet18": 8,
    "torchvision:resnet50": 16,
    "torchvision:mobilenet_v2": 10,
    "torchvision:efficientnet_b0": 9,
}
"""Number of residual blocks according to the papers; for mobile networks, only those that keep the shape."""


@pytest.mark.parametrize("name", NAMED)
def test_a_branch_may_be_removed(name):
    model = lively(name)
    branches = found(model, 32)
    assert len(branches) == NAMED[name]
    for branch in branches if name == "cifar_resnet20" else (branches[0], branches[-1]):
        assert_same(model, [branch], 32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torchvision:resnet18", "torchvision:mobilenet_v2"])
def test_each_branch_may_be_removed(name):
    model = lively(name, seed=1)
    for branch in found(model, 32):
        assert_same(model, [branch], 32)


@pytest.mark.parametrize("name", ["cifar_resnet20", "torchvision:efficientnet_b0"])
def test_many_branches_are_removed_together(name):
    model = lively(name)
    branches = found(model, 32)
    some = assert_same(model, branches[1::2], 32)
    assert [branch.name for branch in found(some, 32)] == [branch.name for branch in branches[0::2]]
    rest = drop_branches(some, [branch.name for branch in branches[0::2]])  # found again by name
    together = assert_same(model, branches, 32)
    assert torch.equal(rest(images(32)), together(images(32)))
    assert found(together, 32) == ()


def test_branches_of_resnet20_by_hand():
    branches = found(build_model("cifar_resnet20", 10), 32)
    blocks = [f"layer{stage}.{block}" for stage in (1, 2, 3) for block in (0, 1, 2)]
    assert [branch.name for branch in branches] == [f"{block}.conv2" for block in blocks]
    assert [branch.groups for branch in branches] == [(f"{block}.conv1",) for block in blocks]
    modules = ("conv1", "bn1", "relu", "conv2", "bn2")
    assert branches[3].modules == tuple(f"layer2.0.{module}" for module in modules)  # the projection stays


def test_squeeze_and_excitation_goes_with_its_branch():
    first = found(build_model("torchvision:efficientnet_b0", 5), 32)[0]
    assert first.name == "features.2.1.block.3.0"
    assert first.groups == ("features.2.1.block.0.0", "features.2.1.block.2.fc1")
    assert {"features.2.1.block.1.0", "features.2.1.block.2.fc2"} <= set(first.modules)


def test_a_group_whose_first_producer_was_removed_is_found_again():
    model = lively("torchvision:resnet18")
    assert "layer2.0.conv2" in {group.name for group in trace(model, (3, 32, 32)).groups}
    network = trace(drop_branches(model, ["layer2.0.conv2"]), (3, 32, 32))
    stream = next(group for group in network.groups if "layer2.1.conv2" in group.producers)
    assert (stream.name, stream.producers) == ("layer2.0.downsample.0", ("layer2.0.downsample.0", "layer2.1.conv2"))


def test_what_is_left_can_be_cut_and_scored():
    dropped = drop_branches(lively("cifar_resnet20"), ["layer1.1.conv2", "layer2.0.conv2", "layer3.2.conv2"])
    network = trace(dropped, (3, 32, 32))
    prunable = [group for group in network.groups if not group.fixed]
    scatters = FeatureGraph(dropped, [group.producers[0] for group in prunable]).scatters(
        [(images(32) + label, label) for label in range(2)]
    )
    assert set(scatters) == {group.producers[0] for group in prunable}
    kept = {group.name: tuple(range(0, group.width, 2)) for group in prunable}
    keeps = keeps_of(network.groups, kept, network.sizes)
    cut = apply_keeps_(copy.deepcopy(dropped), keeps)
    with torch.inference_mode():
        torch.testing.assert_close(cut(images(32)), masked(dropped, keeps)(images(32)), rtol=1e-5, atol=1e-5)
    assert all(layer.out_channels in (5, 8, 16, 32) for layer in list_layers(cut, (3, 32, 32)))


def test_additions_written_in_all_ways():
    model = randomised(Written())
    branches = found(model)
    assert [branch.name for branch in branches] == ["outer0", "outer1", "outer2", "outer3"]
    for which in ([0], [1], [2], [3], [0, 3], [0, 1, 2, 3]):
        assert_same(model, [branches[place] for place in which], 8)


def test_no_names_no_change():
    model = Residual()
    assert drop_branches(model, []) is model


def test_the_model_stays_as_it_is():
    model = randomised(Residual()).train()
    before = copy.deepcopy(model.state_dict())
    dropped = drop_branches(model, ["outer"])
    assert dropped.training
    with torch.no_grad():
        dropped.stem.weight.zero_()
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["stem", "wide", "down", "no.such"])
def test_what_is_no_branch_is_refused(name):
    with pytest.raises(ModelError, match=rf"(?s)\b{re.escape(name)}\b.*\bouter\b"):
        drop_branches(Residual(), [name])


def test_a_branch_to_be_ignored_stays():
    model = build_model("cifar_resnet20", 5)
    network = trace(model, (3, 32, 32), ["layer1", "layer2.1.conv2"])
    names = {branch.name for branch in find_branches(model, network)}
    assert names == {f"layer{block}.conv2" for block in ("2.0", "2.2", "3.0", "3.1", "3.2")}
    fixed = trace(model, (3, 32, 32), ["layer1", "layer2.1.conv1"])  # these inner groups must stay
    assert {branch.name for branch in find_branches(model, fixed)} == names


class Odd(Residual):
    """Operands that look like branches but are not."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = nn.Conv2d(6, 6, 3, padding=1)
        self.squeeze, self.excite = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)
        self.read, self.read_on = nn.Conv2d(6, 3, 1), nn.Conv2d(3, 6, 1)
        self.before, self.after = nn.Conv2d(6, 6, 1), nn.Conv2d(6, 3, 1)
        self.back = nn.Conv2d(3, 6, 1)
        self.write = nn.ReLU(inplace=True)
        self.first, self.second = nn.Conv2d(6, 3, 1), nn.Conv2d(3, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn(self.stem(x)))
        x = x + self.alone(x)  # without its own group
        x = x + self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True))))  # broadcast
        read = self.read(x)
        x = x + self.read_on(read)  # its inner map is read elsewhere
        x = x + self.back(self.after(self.before(x) * x))  # a layer from the stream to the stream
        x = x + self.second(self.first(self.write(x)))  # writes over the stream
        x = torch.add(x, self.outer(self.inner(x)), alpha=2)
        return self.fc(self.wide(x).mean((2, 3))) + read.mean()


def test_operands_that_may_not_go():
    model = randomised(Odd())
    assert found(model) == ()
    for name in ("alone", "read_on", "second", "outer"):  # known from the graph alone
        with pytest.raises(ModelError, match=rf"\b{name}\b"):
            drop_branches(model, [name])


class Nested(nn.Module):
    """Blocks within a long branch, and a projection of two layers."""

    def __init__(self) -> None:
        super().__init__()
        for name, inputs, out in (
            ("stem", 3, 4), ("enter", 4, 6), ("a", 6, 5), ("b", 5, 6), ("leave", 6, 4),
            ("short", 4, 3), ("cut", 3, 8), ("long", 4, 7), ("longer", 7, 5), ("longest", 5, 8),
        ):  # fmt: skip
            self.add_module(name, nn.Conv2d(inputs, out, 1))
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = torch.relu(self.enter(x))
        x = x + self.leave(y + self.b(torch.relu(self.a(y))))
        x = self.cut(torch.relu(self.short(x))) + self.longest(self.longer(self.long(x)))
        return self.fc(x.mean((2, 3)))


def test_inner_branches_and_longer_operands_come_first():
    model = randomised(Nested())
    branches = found(model)
    assert [(branch.name, branch.groups) for branch in branches] == [("b", ("a",)), ("longest", ("long", "longer"))]
    assert_same(model, branches, 8)


@pytest.mark.parametrize("name", NAMED)
def test_gradients_reach_every_weight_when_all_branches_are_gone(name):
    model = lively(name)
    dropped = drop_branches(model, [branch.name for branch in found(model, 32)]).train()
    dropped(images(32)).square().sum().backward()
    assert all(weight.grad is not None for weight in dropped.parameters())


def test_a_relu_behind_a_relu_goes_too():
    dropped = drop_branches(lively("torchvision:resnet18"), ["layer1.0.conv2", "layer1.1.conv2", "layer2.1.conv2"])
    calls = [str(node.target) for node in dropped.graph.nodes]
    assert not any("clone" in call or call.startswith("layer1") or call == "layer2.1.relu" for call in calls)
    assert calls.count("layer2.0.relu") == 2  # before the projection's sum and after it


def test_onnx_of_a_network_that_reads_its_mode(tmp_path):
    file = tmp_path / "written.onnx"
    dropped = drop_branches(randomised(Written()), ["outer0", "outer2"])
    export_onnx(dropped, (3, 8, 8), file, opset=18, dynamic_batch=True, metadata={})
    assert "Dropout" not in {node.op_type for node in onnx.load(file).graph.node}


def test_onnx_of_a_shallower_network(tmp_path):
    model = lively("cifar_resnet20")
    counts = []
    for names in ([], ["layer1.0.conv2", "layer2.0.conv2"]):
        file = tmp_path / f"{len(names)}.onnx"  # written only if ONNX Runtime agrees with PyTorch
        export_onnx(drop_branches(model, names), (3, 32, 32), file, opset=18, metadata={})
        types = [node.op_type for node in onnx.load(file).graph.node]
        counts.append((types.count("Conv"), types.count("Add"), types.count("Relu"), types.count("Identity")))
    # Each branch removes two convolutions, one addition and its inner ReLU; the ReLU after an identity is removed too.
    assert counts[0] == (21, 9, 19, 0)
    assert counts[1] == (17, 7, 16, 0)


class Partly(Residual):
    """A residual branch with its own scale, and one with a module that cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        del self.down, self.inner_bn
        self.scale = nn.Parameter(torch.rand(6, 1, 1))
        self.shift = nn.Parameter(torch.rand(5, 1, 1))
        self.enter, self.turn, self.leave = nn.Conv2d(6, 4, 1), ByCount(4), nn.Conv2d(4, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn(self.stem(x)))
        x = torch.relu(x + self.outer(torch.relu(self.inner(x) + self.shift)) * self.scale)
        x = torch.relu(x + self.leave(self.turn(self.enter(x))))
        return self.fc(self.wide(x).mean((2, 3)))


def test_all_that_a_branch_alone_reads_goes_with_it():
    model = randomised(Partly())
    scaled, turned = found(model)
    assert (scaled.name, scaled.groups) == ("outer", ("inner",))
    assert set(scaled.modules) == {"inner", "outer", "scale", "shift"}
    assert (turned.name, turned.groups) == ("leave", ("enter", "turn.conv"))
    assert set(turned.modules) == {"enter", "turn", "turn.conv", "leave"}
    for branches in ([scaled], [turned], [scaled, turned]):
        assert_same(model, branches, 8)
    left = trace(model, (3, 8, 8)).without(set(scaled.modules))
    assert {slot.module for group in left.groups for slot in group.slots}.isdisjoint(scaled.modules)


def test_the_same_branches_go_whatever_was_ignored():
    model = randomised(Partly())
    network = trace(model, (3, 8, 8), ["turn"])
    assert [branch.name for branch in find_branches(model, network)] == ["outer"]
    one, other = drop_branches(model, ["outer"], ["turn"]), drop_branches(model, ["outer"])
    assert one.state_dict().keys() == other.state_dict().keys()
    torch.testing.assert_close(one(images()), other(images()))
