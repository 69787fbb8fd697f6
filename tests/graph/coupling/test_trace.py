"""Layers, groups, and what must stay as it is."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import list_layers, trace
from catro_deploy.models import build_model
from tests.graph.networks import Branches, Grouped, Residual
from tests.graph.user_networks import Functional, Upsampled


def test_layers_carry_shapes_by_hand():
    layers = {layer.name: layer for layer in list_layers(Branches(), (3, 8, 8))}
    assert layers["left"].macs == 64 * 9 * 3 * 4
    assert layers["depthwise"].macs == 64 * 9 * 6
    assert layers["last"].macs == 16 * 9 * 10 * 5
    assert layers["fc"].macs == 80 * 3
    assert {name: layer.stride for name, layer in layers.items() if layer.stride > 1} == {"last": 2}


class Named(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self:
            x = layer(input=x)
        return x


def test_layers_that_are_called_with_keywords_are_layers():
    parts = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)
    assert trace(Named(*parts).eval(), (3, 8, 8)) == trace(nn.Sequential(*parts).eval(), (3, 8, 8))


class Square(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[2] == x.shape[3]
        return super().forward(x)


def test_of_a_model_that_fails_the_line_is_named():
    with pytest.raises(ModelError, match=r"AssertionError: .*test_trace\.py:\d+: assert x\.shape"):
        list_layers(Square(3, 4, 3), (3, 8, 9))


def test_resnet20_has_the_macs_of_the_paper():
    # 41.2 million with He et al.'s option A, 41.0 with 1x1 projections; the pruning literature reports 40.8 to 41.
    layers = list_layers(build_model("cifar_resnet20", 10), (3, 32, 32))
    stem, stage1 = 1024 * 9 * 3 * 16, 1024 * 9 * 16 * 16 * 6
    stage2 = 256 * (9 * 16 * 32 + 9 * 32 * 32 * 5 + 16 * 32)
    stage3 = 64 * (9 * 32 * 64 + 9 * 64 * 64 * 5 + 32 * 64)
    assert sum(layer.macs for layer in layers) == stem + stage1 + stage2 + stage3 + 640


def test_a_residual_stream_is_one_group():
    groups = {group.name: group for group in trace(Residual(), (3, 8, 8)).groups}
    assert groups["stem"].producers == ("stem", "outer")
    assert {slot.module for slot in groups["stem"].slots if slot.axis == "in"} == {"inner", "down", "wide"}
    assert set(groups["down"].producers) == {"down", "wide"}
    assert groups["inner"].producers == ("inner",)


def test_members_of_a_concatenation_keep_their_own_indices():
    groups = {group.name: group for group in trace(Branches(), (3, 8, 8)).groups}
    right = next(slot for slot in groups["right"].slots if slot.module == "norm")
    assert (right.index, right.channel) == ((4, 5, 6, 7, 8, 9), (0, 1, 2, 3, 4, 5))


def test_without_a_branch_groups_lose_what_lay_in_it():
    whole = trace(Residual(), (3, 8, 8))
    rest = whole.without({"inner", "inner_bn", "outer"})
    assert [layer.name for layer in rest.layers] == ["stem", "down", "wide", "fc"]
    groups = {group.name: group for group in rest.groups}
    assert set(groups) == {"stem", "down", "fc"}
    assert groups["stem"].producers == ("stem",)
    assert {slot.module for slot in groups["stem"].slots} == {"stem", "bn", "down", "wide"}
    assert groups["down"] == next(group for group in whole.groups if group.name == "down")
    assert set(rest.sizes) == set(whole.sizes) - {"inner", "inner_bn", "outer"}
    assert (rest.head, rest.input_shape) == (whole.head, whole.input_shape)


def test_a_group_keeps_its_name_when_its_first_producer_is_gone():
    rest = trace(Residual(), (3, 8, 8)).without({"down"})
    (group,) = [group for group in rest.groups if group.name == "down"]
    assert group.producers == ("wide",)


def test_the_logits_stay():
    network = trace(Residual(), (3, 8, 8))
    assert network.head == "fc"
    assert {group.name: group.fixed for group in network.groups if group.fixed} == {"fc": "the logits"}


def test_channels_around_a_grouped_convolution_go_by_whole_groups():
    (first, *_) = trace(Grouped(), (3, 8, 8)).groups
    assert (first.width, first.producers, first.fixed) == (2, ("first", "grouped"), "")


def test_a_shared_module_is_one_layer_with_the_positions_of_all_its_calls():
    layers = {layer.name: layer for layer in list_layers(Functional(), (3, 8, 8))}
    assert layers["twice"].macs == 2 * 64 * 9 * 6 * 6


def test_a_transposed_convolution_multiplies_each_input_with_the_kernel():
    layers = {layer.name: layer for layer in list_layers(Upsampled(), (3, 8, 8))}
    assert layers["up"].macs == 64 * 4 * 8 * 6


def test_a_weight_that_two_modules_share_is_in_both():
    class Tied(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.again = nn.Conv2d(6, 8, 1, stride=2)
            self.again.weight = self.down.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.bn(self.stem(x)))
            return self.fc(torch.relu(self.down(x) + self.again(x)).mean((2, 3)))

    groups = {group.name: group for group in trace(Tied(), (3, 8, 8)).groups}
    assert groups["down"].producers == ("down", "again")
    assert {(slot.module, slot.axis) for slot in groups["stem"].slots} >= {("down", "in"), ("again", "in")}


def test_a_functional_layer_goes_by_the_name_of_its_weight():
    layers = list_layers(Functional(), (3, 8, 8))
    assert [layer.name for layer in layers] == ["first", "twice", "fc"]
    assert layers[0].macs == 64 * 9 * 3 * 6


def test_an_ignored_module_stays():
    fixed = {g.name: g.fixed for g in trace(build_model("cifar_resnet20", 10), (3, 32, 32), ["layer2"]).groups}
    assert "ignored" in fixed["layer2.1.conv1"]
    assert fixed["layer3.1.conv1"] == ""


def test_a_name_to_ignore_that_is_not_there():
    with pytest.raises(ModelError, match="layer9"):
        trace(Residual(), (3, 8, 8), ["layer9"])


def test_images_that_do_not_fit_the_model():
    with pytest.raises(ModelError, match=r"(?s)shape \(1, 8, 8\).*mean"):
        trace(Residual(), (1, 8, 8))


def test_a_model_without_layers():
    class Nothing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3)) * self.scale

    with pytest.raises(ModelError, match="no convolution"):
        trace(Nothing(), (3, 8, 8))


def test_channels_that_shuffles_tie_all_together_stay():
    fixed = {g.name: g.fixed for g in trace(build_model("torchvision:shufflenet_v2_x1_0", 10), (3, 64, 64)).groups}
    assert fixed["stage2.0.branch1.2"].startswith("all of them are coupled by a split into equal parts in stage2.")
    assert "shufflenetv2.py:" in fixed["stage2.0.branch1.2"]
    assert fixed["stage2.1.branch2.0"] == ""


def test_grouped_convolutions_that_read_shuffled_channels_are_named_as_what_ties_them():
    class Interleaved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1, groups=2)
            self.third, self.head = nn.Conv2d(8, 8, 1, groups=2), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.second(self.first(x))
            x = x.view(1, 2, 4, *x.shape[2:]).transpose(1, 2).reshape(x.shape)
            return self.head(self.third(x).mean((2, 3)))

    fixed = {group.name: group.fixed for group in trace(Interleaved(), (3, 4, 4)).groups}
    assert fixed["first"].startswith("all of them are coupled by a grouped convolution, which loses whole groups, in ")


def test_of_several_heads_all_logits_stay():
    class Heads(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = torch.relu(self.stem(x)).mean((2, 3)).repeat(1, 2)[:, :8]
            return self.fc(x), self.other(x)

    fixed = {group.name: group.fixed for group in trace(Heads(), (3, 8, 8)).groups}
    assert (fixed["fc"], fixed["other"]) == ("the logits", "the logits")


class OwnWeight(nn.Module):
    """A convolution, a weight that belongs to no layer, and the logits."""

    def __init__(self, *, transposed: bool) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6, 2)
        self.weight, self.transposed = nn.Parameter(torch.randn(6, 6)), transposed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x).mean((2, 3))
        x = x @ self.weight if self.transposed else functional.linear(x, self.weight)
        return self.head(x.relu())


class Tied(OwnWeight):
    def __init__(self) -> None:
        super().__init__(transposed=False)
        self.encoder = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.encoder(self.conv(x).mean((2, 3))).relu()
        return self.head(functional.linear(x, self.encoder.weight.t()).relu())


@pytest.mark.parametrize(
    ("model", "name", "reason"),
    [
        (OwnWeight(transposed=True), "conv", "weight is applied to them transposed"),
        (Tied(), "encoder", "encoder.weight is applied to them transposed"),
        (OwnWeight(transposed=False), "conv", ""),
    ],
)
def test_what_a_transposed_weight_reads_stays(model, name, reason):
    fixed = {group.name: group.fixed for group in trace(model.eval(), (3, 8, 8)).groups}[name]
    assert fixed.startswith(reason)
    assert ("test_trace.py:" in fixed) == bool(reason)
