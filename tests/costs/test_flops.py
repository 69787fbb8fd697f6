"""Multiply-accumulates: expected counts are derived by hand."""

from catro_deploy.costs.flops import FlopsCost
from catro_deploy.records import Group, Layer, Slot


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
