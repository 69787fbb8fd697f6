"""Costs summed over layers: at which widths each layer is priced, and the same costs as tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.errors import BudgetError
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.records import Group, Layer, Slot


def slot(module: str, axis: str, channels: range, at: int = 0) -> Slot:
    """All ``channels`` of a group, at the indices of a module that start at ``at``."""
    return Slot(module, axis, tuple(range(at, at + len(channels))), tuple(channels))


def made(name: str, width: int, *readers: Slot) -> Group:
    return Group(name, width, (slot(name, "out", range(width)), *readers), (name,))


def chain() -> tuple[list[Layer], list[Group]]:
    """A stream that ``one`` reads and ``back`` writes: a pair in both orders; ``again`` stays within one group."""
    layers = [
        Layer("stem", 64, 27, 3, 4),
        Layer("one", 16, 9, 4, 8),
        Layer("back", 16, 9, 8, 4),
        Layer("again", 16, 9, 4, 4),
        Layer("head", 1, 1, 4, 5),
    ]
    stream = Group(
        "stem",
        4,
        (
            *(slot(name, "out", range(4)) for name in ("stem", "back", "again")),
            *(slot(name, "in", range(4)) for name in ("one", "again", "head")),
        ),
        ("stem", "back", "again"),
    )
    return layers, [stream, made("one", 8, slot("back", "in", range(8)))]


def total(layer: Layer, in_width: float, out_width: float) -> float:
    """A price that distinguishes the layers and the order of the widths."""
    return layer.positions + in_width + 100 * out_width


def test_each_layer_is_priced_at_its_widths():
    layers, groups = chain()
    cost = LayerCost(layers, groups, total, overhead=7)
    widths = {"stem": 2, "one": 3}
    by_hand = 7 + (64 + 3 + 200) + (16 + 2 + 300) + (16 + 3 + 200) + (16 + 2 + 200) + (1 + 2 + 500)
    assert cost.predict(widths) == by_hand
    # One more channel in the stream: stem's output, one's input, back's and again's output, again's and head's input.
    assert cost.change(widths, "stem", 3) == 100 + 1 + 100 + 101 + 1
    assert cost.neighbours("stem") == ("stem", "one")


def test_layers_without_inputs_or_outputs_cost_nothing():
    layers, groups = chain()
    cost = LayerCost(layers, groups, total)
    assert cost.predict({"stem": 2, "one": 0}) == (64 + 3 + 200) + (16 + 2 + 200) + (1 + 2 + 500)
    assert cost.change({"stem": 2, "one": 3}, "one", 0) == -(16 + 2 + 300) - (16 + 3 + 200)


def test_tables_by_hand():
    layers, groups = chain()
    found = LayerCost(layers, groups, total, overhead=7).tables({"stem": (2, 4), "one": (0, 3)})
    assert found.constant == 7
    np.testing.assert_array_equal(found.single["stem"], [267 + 218 + 503, 467 + 420 + 505])
    np.testing.assert_array_equal(found.single["one"], [0, 0])
    # one and back lie between the same two groups: one table.
    assert list(found.pair) == [("stem", "one")]
    np.testing.assert_array_equal(found.pair["stem", "one"], [[0, 318 + 219], [0, 320 + 419]])


def test_a_layer_that_no_group_touches_is_constant():
    found = LayerCost([Layer("alone", 16, 9, 3, 4)], [], total).tables({})
    assert (found.constant, found.pair) == (16 + 3 + 400, {})


def test_an_answer_is_kept():
    asked = []

    def slow(layer: Layer, in_width: float, out_width: float) -> float:
        asked.append((layer.name, in_width, out_width))
        return 1.0

    layers, groups = chain()
    cost = LayerCost(layers, groups, slow)
    for _ in range(3):
        cost.predict({"stem": 2, "one": 3})
    assert sorted(asked) == sorted(set(asked))
    assert len(asked) == len(layers)


def test_two_groups_on_one_axis_are_a_pair_and_a_third_is_too_many():
    # A concatenation in front of head.
    layers = [Layer("one", 1, 1, 3, 4), Layer("two", 1, 1, 3, 6), Layer("head", 1, 1, 10, 5)]
    groups = [made("one", 4, slot("head", "in", range(4))), made("two", 6, slot("head", "in", range(6), at=4))]
    found = LayerCost(layers, groups, lambda layer, inputs, out: inputs * out).tables({"one": (1, 4), "two": (0, 6)})
    np.testing.assert_array_equal(found.pair["one", "two"], [[1 * 5, 7 * 5], [4 * 5, 10 * 5]])
    several = LayerCost(layers, [*groups, made("head", 5)], total)
    with pytest.raises(BudgetError, match=r"(?s)one, two, head.*--allocation greedy"):
        several.tables({"one": (1,), "two": (1,), "head": (1,)})


def test_a_group_twice_in_one_module_counts_twice():
    # Its channels are concatenated with themselves; the same slot may also be listed twice.
    layers = [Layer("one", 1, 1, 3, 4), Layer("head", 1, 1, 8, 5)]
    first, second = slot("head", "in", range(4)), slot("head", "in", range(4), at=4)
    for slots in ((first, second), (first, second, first)):
        cost = LayerCost(layers, [made("one", 4, *slots)], lambda layer, inputs, out: inputs)
        assert cost.predict({"one": 3}) == 3 + 6


@given(stem=st.integers(0, 4), one=st.integers(0, 8), seed=st.integers(0, 99))
def test_the_tables_add_up_to_the_prediction(stem, one, seed):
    generator = np.random.default_rng(seed)
    prices = {name: generator.random((9, 9)) for name in ("stem", "one", "back", "again", "head")}
    layers, groups = chain()
    cost = LayerCost(layers, groups, lambda layer, a, b: float(prices[layer.name][int(a), int(b)]), overhead=0.5)
    found = cost.tables({"stem": range(5), "one": range(9)})
    entries = found.single["stem"][stem] + found.single["one"][one] + found.pair["stem", "one"][stem, one]
    assert cost.predict({"stem": stem, "one": one}) == pytest.approx(found.constant + entries)
