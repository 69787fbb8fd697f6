"""Latency from cells made by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.errors import ProfileError
from catro_deploy.latency.table import Cell, Fit, TableCost, fit_whole, layer_shape, prediction_errors
from catro_deploy.records import Group, Layer, Slot, Staircase

LAYERS = [Layer("stem", 64, 9, 3, 8), Layer("depthwise", 64, 9, 8, 8, groups=8), Layer("head", 1, 1, 8, 5)]
SHAPES = {"stem": "first", "depthwise": "second", "head": "last"}
FIT = Fit(slope=2.0, per_node_us=-1.0, fixed_us=10.0)


def cell(us: float, nodes: float = 1) -> Cell:
    return Cell(us, nodes, 0.0, 1)


CELLS = {
    "first": {(3, 4): cell(50, 2), (3, 8): cell(60)},
    "second": {(4, 4): cell(20), (8, 8): cell(30)},
    "last": {(4, 5): cell(6), (8, 5): cell(7, 3)},
}


def groups() -> list[Group]:
    at = tuple(range(8))
    slots = [("stem", "out"), ("depthwise", "in"), ("depthwise", "out"), ("head", "in")]
    return [Group("stem", 8, tuple(Slot(name, axis, at, at) for name, axis in slots), ("stem", "depthwise"))]


def table(**changes) -> TableCost:
    return TableCost(LAYERS, groups(), SHAPES, CELLS | changes, FIT)


def test_measured_widths_by_hand():
    # A fixed 10, twice the time of each layer, and 1 less for each of its nodes.
    by_layer = {"stem": 2 * 50 - 2, "depthwise": 2 * 20 - 1, "head": 2 * 6 - 1}
    cost = table()
    assert cost.by_layer({"stem": 4}) == by_layer
    assert cost.predict({"stem": 4}) == 10 + sum(by_layer.values())
    assert cost.predict({"stem": 8}) == 10 + (120 - 1) + (60 - 1) + (14 - 3)
    assert cost.estimated({"stem": 4}) == []


def test_other_widths_are_estimated_from_the_nearest_and_named():
    """7 of 8 channels: the stem and the head have 7/8 of the work, and so has the depthwise layer."""
    cost = table()
    assert cost.estimated({"stem": 7}) == ["stem", "depthwise", "head"]
    assert cost.by_layer({"stem": 7}) == pytest.approx(
        {"stem": 2 * 60 * 7 / 8 - 1, "depthwise": 2 * 30 * 7 / 8 - 1, "head": 2 * 7 * 7 / 8 - 3}
    )
    # 5 is nearer to 4, with 5/4 of its work.
    assert cost.by_layer({"stem": 5})["stem"] == pytest.approx(2 * 50 * 5 / 4 - 2)


def test_between_efficient_widths_the_staircase_counts():
    """The layers took 30 us with 7 channels and 16 us with 8: 30 / 16 * 8 / 7 times the proportional time."""
    stairs = Staircase(swept=((4, 10.0), (7, 30.0), (8, 16.0)), candidates=(4, 8), period=4)
    cost = TableCost(LAYERS, groups(), SHAPES, CELLS, FIT, {"stem": stairs})
    assert cost.by_layer({"stem": 7}) == pytest.approx(
        {"stem": 2 * 60 * 30 / 16 - 1, "depthwise": 2 * 30 * 30 / 16 - 1, "head": 2 * 7 * 30 / 16 - 3}
    )
    for measured in (4, 8):
        assert cost.by_layer({"stem": measured}) == table().by_layer({"stem": measured})
    # At 5, which was not swept, the time is interpolated: 10 + 20 / 3 us, compared with 10 us at 4.
    assert cost.by_layer({"stem": 5})["stem"] == pytest.approx(2 * 50 * (10 + 20 / 3) / 10 - 2)


def test_of_two_sides_the_larger_factor_counts():
    layer = Layer("conv", 64, 9, 8, 8)
    sides = [
        Group(name, 8, (Slot("conv", axis, tuple(range(8)), tuple(range(8))),), ())
        for name, axis in (("before", "in"), ("after", "out"))
    ]
    stairs = {
        "before": Staircase(((7, 16.0), (8, 16.0)), (8,), 8),  # 7 take 8/7 times the proportional time
        "after": Staircase(((7, 32.0), (8, 16.0)), (8,), 8),  # 7 take twice as much
    }
    cost = TableCost([layer], sides, {"conv": "one"}, {"one": {(8, 8): cell(80, 0)}}, Fit(1.0, 0.0, 0.0), stairs)
    assert cost.predict({"before": 7, "after": 8}) == pytest.approx(80)
    assert cost.predict({"before": 8, "after": 7}) == pytest.approx(160)
    assert cost.predict({"before": 7, "after": 7}) == pytest.approx(80 * 7 / 8 * 2)


def test_a_group_that_is_gone_leaves_the_fixed_channels_of_a_layer():
    """Of its 8 input channels, 4 belong to a group with no channels left."""
    some = Group("some", 4, (Slot("conv", "in", (4, 5, 6, 7), (0, 1, 2, 3)),), ())
    stairs = {"some": Staircase(((2, 10.0), (4, 20.0)), (2, 4), 2)}
    cells = {"one": {(8, 8): cell(80, 0)}}
    cost = TableCost([Layer("conv", 64, 9, 8, 8)], [some], {"conv": "one"}, cells, Fit(1.0, 0.0, 0.0), stairs)
    assert cost.predict({"some": 0}) == pytest.approx(40)


def test_layers_that_are_gone_cost_nothing_and_are_not_estimated():
    cost = table()
    assert cost.by_layer({"stem": 0}) == {"stem": 0, "depthwise": 0, "head": 0}
    assert cost.predict({"stem": 0}) == 10
    assert cost.estimated({"stem": 0}) == []


def test_no_layer_takes_less_than_nothing():
    """Profiling adds more to a node than a tiny layer takes."""
    cost = table(last={(8, 5): cell(1, nodes=4)})
    assert 0 < cost.by_layer({"stem": 8})["head"] < 0.1


@pytest.mark.parametrize("cells", [{}, {"last": {}}, None])
def test_a_layer_without_any_measurement_is_an_error(cells):
    shapes = {"stem": "first", "depthwise": "second"} if cells is None else SHAPES
    known = {name: of for name, of in CELLS.items() if name != "last"}
    with pytest.raises(ProfileError, match=r"\bhead\b") as caught:
        TableCost(LAYERS, groups(), shapes, known | (cells or {}), FIT)
    assert "catro-deploy profile --force" in caught.value.hint


def test_layers_with_other_latency_differ_in_shape():
    plain = Layer("a", 1024, 9, 16, 32)
    shape = layer_shape(plain, ("Conv 3x3", "Relu"))
    assert shape == layer_shape(Layer("b", 1024, 9, 16, 32), ("Conv 3x3", "Relu"))
    others = [
        layer_shape(plain, ("Conv 3x3",)),
        layer_shape(plain, ("Conv 1x9", "Relu")),
        *(
            layer_shape(layer, ("Conv 3x3", "Relu"))
            for layer in (
                Layer("a", 256, 9, 16, 32),
                Layer("a", 1024, 1, 16, 32),
                Layer("a", 1024, 9, 8, 32),
                Layer("a", 1024, 9, 16, 64),
                Layer("a", 1024, 9, 16, 32, groups=16),
                Layer("a", 1024, 9, 16, 32, stride=2),
            )
        ),
    ]
    assert len({shape, *others}) == 1 + len(others)


def planted(generator: np.random.Generator, fit: Fit, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    us, nodes = generator.uniform(200, 900, count), generator.integers(20, 60, count)
    return us, nodes, fit.slope * us + fit.per_node_us * nodes + fit.fixed_us


@settings(deadline=None)  # a hundred least-squares fits take long on a busy machine
@given(slope=st.floats(0.8, 1.2), per_node=st.floats(-2.5, 1), fixed=st.floats(0, 50), seed=st.integers(0, 99))
def test_planted_numbers_are_recovered(slope, per_node, fixed, seed):
    us, nodes, whole = planted(np.random.default_rng(seed), Fit(slope, per_node, fixed), 60)
    found = fit_whole(us, nodes, whole)
    assert (found.slope, found.per_node_us, found.fixed_us) == pytest.approx(
        (slope, per_node, fixed), rel=1e-3, abs=0.1
    )


def test_planted_numbers_are_recovered_from_disturbed_measurements():
    """One network in ten took twice as long; least squares would predict everything 10% too high."""
    generator = np.random.default_rng(0)
    us, nodes, whole = planted(generator, Fit(1.05, -2.0, 30.0), 120)
    measured = whole * generator.normal(1, 0.005, 120)
    measured[::10] *= 2
    found = fit_whole(us, nodes, measured)
    predicted = found.slope * us + found.per_node_us * nodes + found.fixed_us
    assert np.abs(predicted / whole - 1).max() < 0.02


@pytest.mark.parametrize("seed", range(10))
def test_of_networks_that_differ_less_than_the_noise_nothing_absurd_is_learnt(seed):
    """All take about 5 ms, with 20% noise: plain least squares finds slopes from -1.7 to 1.7."""
    generator = np.random.default_rng(seed)
    us, nodes = generator.normal(5500, 150, 40), generator.integers(240, 260, 40)
    truth = us - 2.0 * nodes
    found = fit_whole(us, nodes, truth * generator.normal(1, 0.2, 40))
    predicted = found.slope * us + found.per_node_us * nodes + found.fixed_us
    assert 0.6 < found.slope < 1.4
    assert np.abs(predicted / truth - 1).max() < 0.15


def test_networks_of_equally_many_nodes_are_fitted_too():
    """The time per node cannot be separated from the fixed time, so neither becomes extreme."""
    generator = np.random.default_rng(0)
    us, _, _ = planted(generator, FIT, 40)
    whole = 1.1 * us + 25
    found = fit_whole(us, np.full(40, 30), whole)
    assert found.slope * us + found.per_node_us * 30 + found.fixed_us == pytest.approx(whole)
    assert abs(found.per_node_us) <= 2
    assert abs(found.fixed_us) <= 60


@pytest.mark.parametrize("seed", range(5))
def test_the_fixed_part_is_never_negative(seed):
    """A plane fitted to these latencies starts below zero, and so would predictions for networks of few layers."""
    generator = np.random.default_rng(seed)
    us = generator.uniform(150, 250, 40)
    nodes = generator.integers(20, 60, 40)
    found = fit_whole(us, nodes, 1.5 * us - nodes - 60)
    assert found.slope > 0
    assert found.fixed_us >= 0


def test_more_time_in_layers_never_predicts_a_faster_network():
    us = np.linspace(200, 900, 40)
    found = fit_whole(us, np.full(40, 30), 1500 - us)
    assert found.slope == pytest.approx(0, abs=1e-3)


def test_errors_by_hand():
    found = prediction_errors([104, 208, 327, 348], [100, 200, 300, 400])
    assert (found.networks, found.within_5, found.within_10) == (4, 0.5, 0.75)
    assert found.rmspe == pytest.approx(((0.04**2 + 0.04**2 + 0.09**2 + 0.13**2) / 4) ** 0.5)
    assert found.spearman == pytest.approx(1)
    # Ranks 1, 2, 4, 3: 1 - 6 (1 + 1) / (4 (16 - 1)).
    assert prediction_errors([1, 2, 4, 3], [1, 2, 3, 4]).spearman == pytest.approx(1 - 12 / 60)


@pytest.mark.parametrize(
    ("predicted", "measured"), [([5.0], [5.0]), ([5.0, 5.0], [5.0, 6.0]), ([5.0, 6.0], [5.0, 5.0])]
)
def test_equal_values_have_no_rank_correlation(predicted, measured):
    assert prediction_errors(predicted, measured).spearman == 0
