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


def test_times_are_in_proportion_to_positions_and_what_nodes_cost_stays():
    """Of 64 positions 36 stay; the head has one in both."""
    smaller = [replace(layer, positions=36) if layer.positions == 64 else layer for layer in LAYERS]
    found = scaled_profile(PROFILE, LAYERS, smaller)
    cost = TableCost(smaller, groups(), found.shapes, found.cells, found.fit)
    assert cost.by_layer({"stem": 4}) == pytest.approx(
        {"stem": 2 * 50 * 36 / 64 - 2, "depthwise": 2 * 20 * 36 / 64 - 1, "head": 2 * 6 - 1}
    )
    assert cost.estimated({"stem": 4}) == []


def test_layers_that_shared_cells_and_shrink_differently_are_told_apart():
    layers = [replace(LAYERS[0], name=name) for name in ("one", "two")]
    profile = replace(PROFILE, shapes={"one": "first", "two": "first"})
    smaller = [replace(layers[0], positions=32), replace(layers[1], positions=16)]
    found = scaled_profile(profile, layers, smaller)
    us = {name: found.cells[found.shapes[name]][3, 8].us for name in ("one", "two")}
    assert us == {"one": 60 / 2, "two": 60 / 4}
