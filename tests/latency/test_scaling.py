"""A profile for images of another size, from one that is made by hand."""

from dataclasses import replace

import pytest

from catro_deploy.latency.profile import LatencyProfile
from catro_deploy.latency.scaling import scaled_profile
from catro_deploy.latency.table import TableCost
from catro_deploy.records import CostErrors
from tests.latency.test_table import CELLS, FIT, LAYERS, SHAPES, groups

PROFILE = LatencyProfile(
    target="x86-cpu",
    device={},
    fingerprint={},
    network="",
    measured="2026-01-01",
    seconds=1.0,
    networks=2,
    disagreement=0.01,
    original_us=200.0,
    shapes=SHAPES,
    staircases={},
    fit=FIT,
    errors=CostErrors(1, 1.0, 1.0, 0.01, 1.0),
    cells=CELLS,
)


SMALLER = [replace(layer, positions=36) if layer.positions == 64 else layer for layer in LAYERS]
"""Of 64 positions 36 stay; the head has one in both."""
AT = {"stem": 8}
PROPORTIONAL = 10 + (2 * 60 * 36 / 64 - 1) + (2 * 30 * 36 / 64 - 1) + (2 * 7 - 3)


def cost_of(profile: LatencyProfile) -> TableCost:
    return TableCost(SMALLER, groups(), profile.shapes, profile.cells, profile.fit)


def test_times_are_in_proportion_to_positions_where_that_explains_the_whole():
    cost = cost_of(scaled_profile(PROFILE, LAYERS, SMALLER, groups(), PROPORTIONAL))
    assert cost.predict(AT) == pytest.approx(PROPORTIONAL)
    assert cost.by_layer({"stem": 4}) == pytest.approx(
        {"stem": 2 * 50 * 36 / 64 - 2, "depthwise": 2 * 20 * 36 / 64 - 1, "head": 2 * 6 - 1}
    )
    assert cost.estimated({"stem": 4}) == []


def test_what_positions_do_not_explain_is_shared_by_all_layers():
    cost = cost_of(scaled_profile(PROFILE, LAYERS, SMALLER, groups(), PROPORTIONAL + 12))
    assert cost.predict(AT) == pytest.approx(PROPORTIONAL + 12)
    assert cost.by_layer({"stem": 4}) == pytest.approx(
        {"stem": 2 * 50 * 36 / 64 - 2 + 4, "depthwise": 2 * 20 * 36 / 64 - 1 + 4, "head": 2 * 6 - 1 + 4}
    )


def test_no_time_becomes_negative():
    cost = cost_of(scaled_profile(PROFILE, LAYERS, SMALLER, groups(), PROPORTIONAL - 60))
    assert all(us > 0 for us in cost.by_layer(AT).values())


def test_without_a_slope_times_of_layers_do_not_count():
    flat = replace(PROFILE, fit=replace(FIT, slope=0.0))
    assert scaled_profile(flat, LAYERS, SMALLER, groups(), 100.0).fit == flat.fit


def test_layers_that_shared_cells_and_shrink_differently_are_told_apart():
    layers = [replace(LAYERS[0], name=name) for name in ("one", "two")]
    profile = replace(PROFILE, shapes={"one": "first", "two": "first"})
    smaller = [replace(layers[0], positions=32), replace(layers[1], positions=16)]
    whole_us = 10 + (2 * 60 / 2 - 1) + (2 * 60 / 4 - 1)
    found = scaled_profile(profile, layers, smaller, [], whole_us)
    us = {name: found.cells[found.shapes[name]][3, 8].us for name in ("one", "two")}
    assert us == pytest.approx({"one": 60 / 2, "two": 60 / 4})
