"""Greedy and exact on the real staircase of a GPU: ResNet-50 with TensorRT's latencies on a V100, one image."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import Allocation, GroupValue
from catro_deploy.catro.greedy import greedy
from catro_deploy.errors import BudgetError
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.records import Branch, Layer
from tests import v100_resnet50
from tests.v100 import RECORD
from tests.v100_resnet50 import alone_us, made_up_values, traced


@pytest.fixture(scope="module")
def fp16(test_data: Path) -> LayerCost:
    return priced(test_data, "fp16")


@pytest.fixture(scope="module")
def fp32(test_data: Path) -> LayerCost:
    return priced(test_data, "fp32")


def priced(folder: Path, precision: str) -> LayerCost:
    if not (folder / "latency").is_dir():
        pytest.skip(f"{folder} has no latency folder")
    return v100_resnet50.priced(folder, precision)


def slower_than_a_wider_one(group: GroupValue, cost: LayerCost, widths: dict[str, int]) -> list[int]:
    """Candidates of ``group`` that take longer than a wider one, with the other groups as they are."""
    name, candidates = group.choice.name, [width for width in group.choice.widths if width]
    added = [cost.change(widths, name, width) for width in candidates]
    return [
        width for place, width in enumerate(candidates) if added[place] > min(added[place + 1 :], default=np.inf) + 1e-9
    ]


def check_stands_at_the_foot_of_a_stair(
    found: Allocation, values: Sequence[GroupValue], branches: Sequence[Branch], cost: LayerCost, budget_us: float
) -> None:
    """For every group that is not removed, each wider candidate takes longer and exceeds the budget."""
    assert found.cost == pytest.approx(cost.predict(found.widths))
    assert found.cost <= budget_us
    for group in values:
        name, width = group.choice.name, found.widths[group.choice.name]
        assert width in group.choice.widths
        for wider in [candidate for candidate in group.choice.widths if candidate > width > 0]:
            assert cost.change(found.widths, name, wider) > 0
            assert cost.predict({**found.widths, name: wider}) > budget_us
    for branch in branches:
        assert len({found.widths[name] == 0 for name in branch.groups}) == 1


@pytest.mark.data
@pytest.mark.parametrize("depth", [False, True], ids=["width", "width and depth"])
@pytest.mark.parametrize(("precision", "share"), [("fp16", 0.75), ("fp16", 0.65), ("fp32", 0.75), ("fp32", 0.5)])
def test_both_stand_at_the_foot_of_the_stairs(request, precision, share, depth):
    cost: LayerCost = request.getfixturevalue(precision)
    values, branches = made_up_values(depth), traced().branches if depth else []
    budget_us = share * cost.predict(traced().full)
    by_greedy = greedy(values, cost, budget_us, branches)
    by_exact = exact(values, cost, budget_us, branches, limit_s=60)
    for found in (by_greedy, by_exact):
        check_stands_at_the_foot_of_a_stair(found, values, branches, cost, budget_us)
    assert by_exact.value >= by_greedy.value
    assert by_exact.gap is not None
    assert by_exact.gap <= 0.005
    # The staircase matters: with the other groups as chosen, dozens of widths take longer than a wider one.
    assert sum(len(slower_than_a_wider_one(group, cost, by_exact.widths)) for group in values) > 24


@pytest.mark.data
def test_removed_blocks_reach_what_no_widths_do(fp16):
    # In fp16, the launch and a nearly idle GPU are most of a narrow layer's time; removing the layer saves both.
    budget_us = 0.45 * fp16.predict(traced().full)
    with pytest.raises(BudgetError):
        exact(made_up_values(depth=False), fp16, budget_us, limit_s=60)
    values, branches = made_up_values(), traced().branches
    found = exact(values, fp16, budget_us, branches, limit_s=60)
    check_stands_at_the_foot_of_a_stair(found, values, branches, fp16, budget_us)
    assert 0 < sum(found.widths[branch.groups[0]] == 0 for branch in branches) < len(branches) == 16


@pytest.mark.data
@pytest.mark.parametrize("share", [0.75, 0.5])
def test_that_blocks_may_be_removed_costs_no_worth(fp32, share):
    budget_us = share * fp32.predict(traced().full)
    narrow = exact(made_up_values(depth=False), fp32, budget_us, limit_s=60, gap=0.005)
    both = exact(made_up_values(), fp32, budget_us, traced().branches, limit_s=60, gap=0.005)
    assert both.value >= narrow.value * (1 - 0.005)


@pytest.mark.data
def test_an_eighth_of_every_width_takes_longer_than_a_quarter_in_fp16(fp16):
    times_us = [fp16.predict({name: width // part for name, width in traced().full.items()}) for part in (1, 4, 8)]
    assert times_us[1] < times_us[2] < times_us[0]


@pytest.mark.data
def test_a_layer_takes_what_was_measured(fp16):
    # Rows of the file: 3x3 at 56x56 pixels from 64 channels takes 17.8 us to 16 channels and 16.9 us to 64.
    name = "layer1.1.conv2"
    for width, us in ((16, 17.8), (64, 16.9)):
        assert fp16.by_layer({**traced().full, name: width})[name] == pytest.approx(us, abs=0.05)


def test_a_pair_that_was_not_measured_takes_the_time_of_the_nearest_that_is_wider():
    cells = {(32, 16): 14.0, (64, 16): 17.8, (64, 64): 16.9, (64, 256): 28.2, (128, 256): 25.0}
    records = np.array(
        [(False, 1, inputs, size, out, 3, 1, False, us) for (inputs, out), us in cells.items() for size in (28, 56)],
        dtype=RECORD,
    )
    layer_us = alone_us(records)
    # The nearest wider pair counts, not the fastest: 64 to 16 for 48 to 16, and 64 to 256 for 64 to 128.
    asked = {(32, 16): 14.0, (64, 16): 17.8, (16, 16): 14.0, (48, 16): 17.8, (32, 64): 16.9, (64, 128): 28.2}
    layer = Layer("conv", positions=50 * 50, kernel=9, in_channels=64, out_channels=256)
    assert {pair: layer_us(layer, *pair) for pair in asked} == asked
