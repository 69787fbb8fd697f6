"""A profile for another image size, derived from one made by hand."""

from dataclasses import replace

import pytest

from catro_deploy.latency.profile import LatencyProfile
from catro_deploy.latency.scaling import correction_of, narrow_widths, scaled_profile
from catro_deploy.latency.table import TableCost
from catro_deploy.records import CostErrors, Staircase
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
"""36 of 64 positions remain; the head has one position in both."""
WIDE, NARROW = {"stem": 8}, {"stem": 4}
WIDE_US = 10 + (2 * 60 * 36 / 64 - 1) + (2 * 30 * 36 / 64 - 1) + (2 * 7 - 3)
NARROW_US = 10 + (2 * 50 * 36 / 64 - 2) + (2 * 20 * 36 / 64 - 1) + (2 * 6 - 1)


def scaled(measured, profile=PROFILE, layers=LAYERS, smaller=SMALLER, of=None) -> LatencyProfile:
    correction = correction_of(profile, layers, smaller, groups() if of is None else of, measured)
    return scaled_profile(profile, layers, smaller, correction)


def cost_of(profile: LatencyProfile) -> TableCost:
    return TableCost(SMALLER, groups(), profile.shapes, profile.cells, profile.fit)


def test_times_are_in_proportion_to_positions_where_that_explains_what_is_measured():
    cost = cost_of(scaled([(WIDE, WIDE_US), (NARROW, NARROW_US)]))
    assert cost.predict(WIDE) == pytest.approx(WIDE_US)
    assert cost.by_layer(NARROW) == pytest.approx(
        {"stem": 2 * 50 * 36 / 64 - 2, "depthwise": 2 * 20 * 36 / 64 - 1, "head": 2 * 6 - 1}
    )
    assert cost.estimated(NARROW) == []


def test_two_measurements_correct_what_depends_on_widths_and_what_does_not():
    """1.5 times as long, plus 12 us, a third of which is in each layer."""
    measured = [(WIDE, 1.5 * WIDE_US + 12), (NARROW, 1.5 * NARROW_US + 12)]
    cost = cost_of(scaled(measured))
    assert [cost.predict(WIDE), cost.predict(NARROW)] == pytest.approx([us for _, us in measured])
    assert cost.by_layer(NARROW)["head"] == pytest.approx(1.5 * (2 * 6 - 1) + 4)


def test_measurements_in_the_wrong_order_leave_what_depends_on_widths():
    measured = [(WIDE, WIDE_US + 9), (NARROW, WIDE_US + 10)]
    cost = cost_of(scaled(measured))
    assert cost.predict(WIDE) == pytest.approx(WIDE_US + 9)
    assert cost.predict(NARROW) == pytest.approx(NARROW_US + 9)


def test_no_time_becomes_negative():
    measured = [(WIDE, WIDE_US - 60), (NARROW, NARROW_US - 60)]
    found = scaled(measured)
    assert min(cell.us for cells in found.cells.values() for cell in cells.values()) == 0
    assert all(us > 0 for us in cost_of(found).by_layer(NARROW).values())


def test_without_a_slope_times_of_layers_do_not_count():
    flat = replace(PROFILE, fit=replace(FIT, slope=0.0))
    measured = [(WIDE, 100.0), (NARROW, 90.0)]
    assert scaled(measured, flat).fit.slope == 0


def test_the_narrow_network_has_efficient_widths_near_the_half():
    profile = replace(PROFILE, staircases={"stem": Staircase((), (2, 5, 8), 1)})
    assert narrow_widths(groups(), profile) == {"stem": 5}


def test_layers_that_shared_cells_and_shrink_differently_are_distinguished():
    layers = [replace(LAYERS[0], name=name) for name in ("one", "two")]
    profile = replace(PROFILE, shapes={"one": "first", "two": "first"})
    smaller = [replace(layers[0], positions=32), replace(layers[1], positions=16)]
    whole_us = 10 + (2 * 60 / 2 - 1) + (2 * 60 / 4 - 1)
    found = scaled([({}, whole_us), ({}, whole_us)], profile, layers, smaller, of=[])
    us = {name: found.cells[found.shapes[name]][3, 8].us for name in ("one", "two")}
    assert us == pytest.approx({"one": 60 / 2, "two": 60 / 4})


def test_what_was_found_in_one_precision_corrects_predictions_in_another():
    """A layer that is twice as fast saves as much of what depends on positions, and nothing of what does not."""
    in_int8 = replace(
        PROFILE,
        cells={
            shape: {at: replace(cell, us=cell.us / 2) for at, cell in cells.items()} for shape, cells in CELLS.items()
        },
    )
    correction = correction_of(
        PROFILE, LAYERS, SMALLER, groups(), [(WIDE, 1.5 * WIDE_US + 12), (NARROW, 1.5 * NARROW_US + 12)]
    )
    before = cost_of(scaled_profile(in_int8, LAYERS, SMALLER, replace(correction, factor=1.0, missing_us=0.0)))
    after = cost_of(scaled_profile(in_int8, LAYERS, SMALLER, correction))
    for widths in (WIDE, NARROW):
        assert after.predict(widths) == pytest.approx(1.5 * before.predict(widths) + 12)
