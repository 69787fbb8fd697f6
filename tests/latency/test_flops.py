"""Multiply-accumulates, against counts by hand and those of networks that are really cut."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.graph.coupling.trace import list_layers
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, spread
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.records import Group, Layer, Slot
from tests.graph.cut_networks import CASES, GatedBranches, Grouped, Multiplied, Normalised


def slot(module: str, axis: str, width: int) -> Slot:
    every = tuple(range(width))
    return Slot(module, axis, every, every)


def test_a_chain_with_a_depthwise_layer():
    # conv 3 -> 8 (3x3, 16 positions), depthwise on 8 (3x3, 16 positions), linear 8 -> 5.
    layers = [Layer("conv", 16, 9, 3, 8), Layer("depthwise", 16, 9, 8, 8, groups=8), Layer("head", 1, 1, 8, 5)]
    group = Group(
        "conv", 8, (slot("conv", "out", 8), slot("depthwise", "out", 8), slot("head", "in", 8)), ("conv", "depthwise")
    )
    cost = FlopsCost(layers, [group])
    assert cost.predict({"conv": 8}) == 16 * 9 * 3 * 8 + 16 * 9 * 8 + 8 * 5 == sum(layer.macs for layer in layers)
    assert cost.predict({"conv": 2}) == 16 * 9 * 3 * 2 + 16 * 9 * 2 + 2 * 5
    assert cost.change({"conv": 2}, "conv", 3) == 16 * 9 * 3 + 16 * 9 + 5
    assert cost.predict({"conv": 0}) == 0
    assert cost.tables({"conv": (0, 2)}).single["conv"].tolist() == [0, 16 * 9 * 3 * 2 + 16 * 9 * 2 + 2 * 5]


def test_groups_that_meet_in_a_layer_multiply():
    layers = [Layer("one", 4, 9, 3, 6), Layer("two", 4, 9, 6, 10), Layer("head", 1, 1, 10, 5)]
    first = Group("one", 6, (slot("one", "out", 6), slot("two", "in", 6)), ("one",))
    second = Group("two", 10, (slot("two", "out", 10), slot("head", "in", 10)), ("two",))
    cost = FlopsCost(layers, [first, second])
    assert cost.predict({"one": 2, "two": 3}) == 4 * 9 * (3 * 2 + 2 * 3) + 3 * 5
    assert cost.change({"one": 2, "two": 3}, "two", 4) == 4 * 9 * 2 + 5
    assert set(cost.neighbours("one")) == {"one", "two"}
    tables = cost.tables({"one": (2, 6), "two": (3,)})
    assert tables.constant == 0
    assert tables.single["one"].tolist() == [4 * 9 * 3 * 2, 4 * 9 * 3 * 6]
    assert tables.single["two"].tolist() == [3 * 5]
    assert tables.pair["one", "two"].tolist() == [[4 * 9 * 2 * 3], [4 * 9 * 6 * 3]]


def test_a_flattened_map_gives_its_linear_layer_several_inputs_a_channel():
    # 2 channels of 3x3 positions flattened into a linear layer of 18 inputs and 4 outputs.
    layers = [Layer("conv", 9, 1, 3, 2), Layer("head", 1, 1, 18, 4)]
    flat = Slot("head", "in", tuple(range(18)), tuple(channel for channel in range(2) for _ in range(9)))
    cost = FlopsCost(layers, [Group("conv", 2, (slot("conv", "out", 2), flat), ("conv",))])
    assert cost.predict({"conv": 1}) == 9 * 3 + 9 * 4


def test_channels_outside_the_groups_still_count():
    # A concatenation: 4 channels that stay as they are and 6 of the group.
    layers = [Layer("conv", 1, 1, 3, 6), Layer("head", 1, 1, 10, 2)]
    tail = Slot("head", "in", tuple(range(4, 10)), tuple(range(6)))
    cost = FlopsCost(layers, [Group("conv", 6, (slot("conv", "out", 6), tail), ("conv",))])
    assert cost.predict({"conv": 1}) == 3 + (4 + 1) * 2


def test_a_grouped_convolution_loses_whole_groups():
    """4 groups of 3 channels at 8x8 positions: 2 groups stay, each of which still reads 3 inputs."""
    layers = [
        Layer("stem", 64, 9, 3, 8),
        Layer("expand", 64, 1, 8, 12),
        Layer("grouped", 64, 9, 12, 12, groups=4),
        Layer("reduce", 64, 1, 12, 8),
        Layer("fc", 1, 1, 8, 3),
    ]
    cost = FlopsCost(layers, Grouped.groups)
    assert cost.layer_widths({"stem": 5, "expand": 2})["grouped"] == (6, 6)
    by_hand = 64 * (9 * 3 * 5 + 5 * 6 + 9 * 3 * 6 + 6 * 5) + 5 * 3
    assert cost.predict({"stem": 5, "expand": 2}) == by_hand
    assert cost.change({"stem": 5, "expand": 2}, "expand", 3) == 64 * (5 * 3 + 9 * 3 * 3 + 3 * 5)


def test_two_groups_on_the_outputs_of_one_layer():
    """4 and 6 channels are concatenated; the gate of all 10 is computed from 5."""
    layers = [
        Layer("left", 64, 9, 3, 4),
        Layer("right", 64, 9, 3, 6),
        Layer("squeeze", 1, 1, 10, 5),
        Layer("excite", 1, 1, 5, 10),
        Layer("fc", 1, 1, 10, 3),
    ]
    cost = FlopsCost(layers, GatedBranches.groups)
    widths = {"left": 1, "right": 4, "squeeze": 2}
    assert cost.layer_widths(widths)["excite"] == (2, 5)
    assert cost.predict(widths) == 64 * 9 * 3 * (1 + 4) + 5 * 2 + 2 * 5 + 5 * 3


def test_a_depthwise_convolution_with_a_multiplier():
    """5 channels with 2 outputs each; 3 stay."""
    layers = [Layer("first", 64, 9, 3, 5), Layer("depthwise", 64, 9, 5, 10, groups=5), Layer("last", 64, 1, 10, 4)]
    cost = FlopsCost(layers, Multiplied.groups)
    assert cost.layer_widths({"first": 3}) == {"first": (3, 3), "depthwise": (3, 6), "last": (6, 4)}
    assert cost.predict({"first": 3}) == 64 * (9 * 3 * 3 + 9 * 6 + 6 * 4)


def test_normalisation_groups_and_a_flattened_map():
    """3 of 4 groups of 2 channels stay; 2 of 6 maps of 4x4 positions stay and are flattened, for 7 outputs."""
    layers = [
        Layer("first", 16, 9, 3, 8),
        Layer("second", 16, 9, 8, 6),
        Layer("fc", 1, 1, 96, 7),
        Layer("last", 1, 1, 7, 3),
    ]
    cost = FlopsCost(layers, Normalised.groups)
    assert cost.predict({"first": 3, "second": 2, "fc": 7}) == 16 * 9 * (3 * 6 + 6 * 2) + 2 * 16 * 7 + 7 * 3


@settings(deadline=None)
@given(name=st.sampled_from(sorted(CASES)), seed=st.integers(0, 1000))
def test_widths_and_costs_are_those_of_the_network_that_is_really_cut(name, seed):
    case, pick = CASES[name], random.Random(seed)
    cost = FlopsCost(list_layers(case.network(), (3, 8, 8)), case.groups)
    widths = {group.name: pick.randint(1, group.width) for group in case.groups}
    kept = {group.name: spread(group, widths[group.name]) for group in case.groups}
    cut = apply_keeps_(case.network(), keeps_of(case.groups, kept, case.sizes))
    layers = list_layers(cut, (3, 8, 8))
    assert cost.predict(widths) == pytest.approx(sum(layer.macs for layer in layers))
    assert cost.layer_widths(widths) == {layer.name: (layer.in_channels, layer.out_channels) for layer in layers}
