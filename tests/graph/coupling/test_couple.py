"""Which channels are coupled: by hand for each way of coupling, and by the masked network for random plans."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of
from catro_deploy.models import build_model
from tests.graph.networks import assert_cut_is_masked, randomised
from tests.graph.user_networks import (
    EVERY,
    AcrossChannels,
    Assigned,
    Attending,
    Blurred,
    BlurredEight,
    Cardinal,
    EverySecond,
    FirstFour,
    Functional,
    Gated,
    GroupNormed,
    Halved,
    LayerNormed,
    Net,
    Padded,
    Shuffled,
    SqueezedConcat,
    Standardised,
    Upsampled,
)

IMAGE = (3, 8, 8)


def atom(group, channel):
    """The places of one atom: (module, side, index)."""
    return {
        (slot.module, slot.axis, index)
        for slot in group.slots
        for index, of in zip(slot.index, slot.channel, strict=True)
        if of == channel
    }


def groups_of(factory):
    """Groups of a network by name, and the places of their atoms."""
    groups = {group.name: group for group in trace(randomised(factory()), IMAGE).groups}
    return groups, {name: [atom(group, channel) for channel in range(group.width)] for name, group in groups.items()}


def test_a_shuffle_ties_the_channels_that_shrink_together():
    # view(2, 4) and a transposition: channels k and k + 4 are neighbours 2k and 2k + 1 afterwards.
    groups, atoms = groups_of(Shuffled)
    assert groups["stem"].width == 4
    assert atoms["stem"][1] == {("stem", "out", 1), ("stem", "out", 5), ("fc", "in", 2), ("fc", "in", 3)}


def test_equal_parts_of_a_split_shrink_equally():
    groups, atoms = groups_of(Halved)
    assert groups["stem"].width == 4
    assert {("stem", "out", 0), ("stem", "out", 4), ("side", "in", 0), ("fc", "in", 0)} <= atoms["stem"][0]
    assert groups["side"].width == 4
    assert atoms["side"][2] == {("side", "out", 2), ("fc", "in", 6)}


def test_a_channel_and_its_gate_go_together():
    groups, atoms = groups_of(Gated)
    assert groups["stem"].width == 4
    assert atoms["stem"][1] == {("stem", "out", 1), ("stem", "out", 5), ("fc", "in", 1)}
    assert not groups["stem"].fixed


def test_channels_that_one_repeated_kernel_reads_are_free():
    groups, atoms = groups_of(Blurred)
    assert atoms["stem"][3] == {("stem", "out", 3), ("fc", "in", 3)}
    assert not groups["stem"].fixed
    groups, _ = groups_of(BlurredEight)
    assert groups["stem"].fixed.startswith("a grouped convolution has computed weights in the forward")


def test_a_slice_of_a_size_that_is_written_down_stays():
    groups, _ = groups_of(FirstFour)
    assert "without some of them the forward fails" in groups["stem"].fixed


def test_a_slice_with_a_stride_stays_and_says_where():
    groups, _ = groups_of(EverySecond)
    assert groups["stem"].fixed.startswith("a part of them is cut out in the forward (user_networks.py:")


def test_a_grouped_convolution_loses_whole_groups():
    groups, atoms = groups_of(Cardinal)
    assert groups["stem"].width == 4
    assert groups["stem"].producers == ("stem", "grouped")
    stem = {("stem", "out", 2), ("stem", "out", 3), ("grouped", "in", 2), ("grouped", "in", 3)}
    after = {(name, side, index) for name, side in (("grouped", "out"), ("fc", "in")) for index in (3, 4, 5)}
    assert atoms["stem"][1] == stem | after


def test_a_group_normalisation_loses_whole_groups():
    groups, atoms = groups_of(GroupNormed)
    assert groups["stem"].width == 4
    assert atoms["stem"][3] == {(name, side, i) for i in (6, 7) for name, side in _STEM_NORM_FC}


class BlurredByStoredNumber(Net):
    """A blur with a filter for each channel, whose number the module holds, as timm's."""

    def __init__(self):
        super().__init__()
        self.channels = 8
        self.register_buffer("kernel", torch.ones(1, 1, 3, 3).repeat(8, 1, 1, 1) / 9)

    def body(self, x):
        return functional.conv2d(x, self.kernel, padding=1, groups=self.channels)


def test_a_stored_number_of_convolution_groups_changes_with_them():
    groups, atoms = groups_of(BlurredByStoredNumber)
    assert (groups["stem"].width, groups["stem"].fixed) == (8, "")
    assert {("stem", "out", 3), ("kernel", "out", 3), ("channels", "out", 3)} <= atoms["stem"][3]


class NormedWithoutWeights(Net):
    """Only numbers say how many channels these normalisations take."""

    def __init__(self):
        super().__init__()
        self.by_group, self.by_image = nn.GroupNorm(4, 8, affine=False), nn.InstanceNorm2d(8)
        self.own, self.groups = nn.Conv2d(8, 8, 1), 2

    def body(self, x):
        return functional.group_norm(self.own(self.by_image(self.by_group(x))), self.groups)


def test_a_normalisation_without_parameters_changes_its_numbers_with_the_channels():
    groups, atoms = groups_of(NormedWithoutWeights)
    assert {name: (group.width, group.fixed) for name, group in groups.items() if name != "fc"} == {
        "stem": (4, ""),
        "own": (2, ""),
    }
    assert {slot.module for slot in groups["stem"].slots} == {"stem", "by_group", "by_image", "own"}
    assert ("groups", "out", 1) in atoms["own"][1]
    model = NormedWithoutWeights()
    sizes = trace(model, IMAGE).sizes
    cut = apply_keeps_(model, keeps_of(list(groups.values()), {"stem": (0, 2, 3), "own": (1,)}, sizes))
    assert (cut.by_group.num_groups, cut.by_group.num_channels, cut.by_image.num_features) == (3, 6, 6)
    assert cut.groups == 1


_STEM_NORM_FC = (("stem", "out"), ("norm", "out"), ("fc", "in"))


def test_channels_that_are_normalised_together_stay():
    groups, _ = groups_of(LayerNormed)
    assert groups["stem"].fixed.startswith("all are normalised together in norm (user_networks.py:")
    assert set(groups["stem"].producers) == {"stem", "down"}
    assert "scale" in {slot.module for slot in groups["stem"].slots}
    assert (groups["up"].width, groups["up"].fixed) == (16, "")


def test_transposed_convolutions_and_sub_pixels():
    groups, atoms = groups_of(Upsampled)
    assert atoms["stem"][0] == {("stem", "out", 0), ("up", "in", 0)}
    assert atoms["up"][5] == {("up", "out", 5), ("sub", "in", 5)}
    assert groups["sub"].width == 2
    assert atoms["sub"][1] == {("sub", "out", i) for i in (4, 5, 6, 7)} | {("fc", "in", 1)}


def test_parameters_of_the_users_own_and_a_module_used_twice():
    groups, atoms = groups_of(Functional)
    # The module reads its own output, so its outputs, its inputs and everything before it form one group. The module
    # is its only producer: the feature map of a functional layer has no name.
    assert groups["twice"].width == 6
    flattened = {("fc", "in", 4 * 3 + position) for position in range(4)}
    assert (
        atoms["twice"][3]
        == {(name, "out", 3) for name in ("first", "gain", "twice")} | {("twice", "in", 3)} | flattened
    )


def test_channels_that_meet_zeros_stay():
    # The stream's 8 channels are padded with two zero channels on either side.
    groups, _ = groups_of(Padded)
    free = next(group for group in groups.values() if set(group.producers) == {"stem", "wide"})
    assert (free.width, free.fixed) == (8, "")
    fixed = next(group for group in groups.values() if group.producers == ("wide",))
    assert fixed.width == 4
    assert "they meet other channels in the forward (user_networks.py:" in fixed.fixed


def test_a_convolution_along_the_channels_keeps_them():
    groups, _ = groups_of(AcrossChannels)
    assert "taken as positions in along" in groups["stem"].fixed
    assert groups["after"].fixed == ""


def test_writing_over_positions_leaves_channels_free():
    groups, _ = groups_of(Assigned)
    assert (groups["stem"].width, groups["stem"].fixed) == (8, "")


class HalfAssigned(Net):
    def body(self, x):
        x[:, :4] = -x[:, :4]
        return x


def test_writing_over_a_number_of_channels_keeps_them_and_names_the_line():
    reason = groups_of(HalfAssigned)[0]["stem"].fixed
    assert reason.startswith("without some of them the forward computes something else; they are coupled by a slice")
    assert "in the forward (test_couple.py:" in reason


def test_a_standardised_weight_keeps_its_inputs():
    groups, _ = groups_of(Standardised)
    assert "reduced to one" in groups["stem"].fixed
    assert (groups["inner"].width, groups["inner"].fixed) == (4, "")


def test_products_of_feature_maps_keep_what_they_sum_over():
    groups, _ = groups_of(Attending)
    assert "product of feature maps" in groups["query"].fixed
    # The result is viewed in the shape of the stem's output, so neither may change alone.
    assert all("without some of them the forward fails" in groups[name].fixed for name in ("stem", "value"))


def test_branches_of_a_gated_concatenation_are_groups_of_their_own():
    groups, atoms = groups_of(SqueezedConcat)
    assert (groups["left"].width, groups["right"].width) == (5, 7)
    right = {("right", "out", 2), ("squeeze", "in", 7), ("excite", "out", 7), ("fc", "in", 7)}
    assert atoms["right"][2] == right
    assert groups["right"].producers == ("right", "excite")


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_what_torch_pruning_finds_coupled_is_coupled(name):
    # An independent reference, on networks whose couplings it is known to find.
    torch_pruning = pytest.importorskip("torch_pruning")
    model = build_model(f"torchvision:{name}", 10)
    names = {module: name for name, module in model.named_modules()}
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        graph = torch_pruning.DependencyGraph().build_dependency(model, (torch.zeros(1, 3, 64, 64),))
        found = list(graph.get_all_groups(root_module_types=[nn.Conv2d, nn.Linear]))
    expected = {
        (
            len(items[0].idxs),
            frozenset(
                names[item.dep.target.module]
                for item in items.items
                if graph.is_out_channel_pruning_fn(item.dep.handler)
                and isinstance(item.dep.target.module, nn.Conv2d | nn.Linear)
            ),
        )
        for items in found
    }
    assert {(group.width, frozenset(group.producers)) for group in trace(model, (3, 64, 64)).groups} == expected


@pytest.mark.parametrize("factory", [*EVERY, BlurredByStoredNumber, NormedWithoutWeights])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_any_plan_leaves_what_the_masked_network_computes(factory, seed):
    model = randomised(factory(), seed)
    assert_cut_is_masked(model, trace(model, IMAGE), seed)


def test_a_forward_that_looks_at_values_is_tried_with_values():
    class Deciding(FirstFour):
        def body(self, x: torch.Tensor) -> torch.Tensor:
            return super().body(x) * (2 if float(self.fc.bias.sum()) > 0 else 3)

    (stem, _) = trace(randomised(Deciding()), IMAGE).groups
    assert "without some of them the forward fails" in stem.fixed
