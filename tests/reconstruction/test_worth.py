"""What widths and branches are worth: losses by hand at measured widths, and by the errors between them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.progress import Silent
from catro_deploy.reconstruction import worth
from catro_deploy.reconstruction.choice import Eliminations
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.loss import divergence
from catro_deploy.reconstruction.worth import LossMeter
from catro_deploy.records import Branch
from tests.reconstruction.networks import KINDS, SHAPE, Stream, calibrated, copy_channel_, free_groups, images


def measured(model: torch.nn.Module, branches: tuple[Branch, ...] = (), candidates: dict | None = None) -> tuple:
    original, groups = OriginalGraph.of(model, SHAPE), free_groups(trace(model, SHAPE))
    batches = images(60)
    eliminations = Eliminations(original, groups, batches, "catro", Silent())
    groups = [group for group in groups if eliminations.readers[group.name]]
    wanted = candidates or {group.name: tuple(range(1, group.width + 1)) for group in groups}
    limit = MemoryLimit(2**30)
    meter = LossMeter(original, eliminations, (batches, batches), limit, macs=10**6)
    losses = meter.measure(groups, wanted, branches, Silent())
    assert limit.left_bytes == 2**30
    return losses, groups, eliminations, original


@pytest.mark.parametrize("kind", ["stream", "without norms", "depthwise", "flattened", "concatenation with a gate"])
def test_nothing_is_lost_at_full_width_and_ever_more_below(kind):
    losses, groups, _, _ = measured(calibrated(KINDS[kind]))
    assert set(losses.widths) == {group.name for group in groups}
    for group in groups:
        by_width = losses.widths[group.name]
        assert by_width[group.width] == 0
        falling = [by_width[width] for width in range(1, group.width + 1)]
        assert falling == sorted(falling, reverse=True)
        assert all(0 <= loss < math.inf for loss in falling)
    assert losses.branches == {}


def test_at_measured_widths_it_is_the_divergence_of_the_network_cut_there_alone():
    """The smallest width is always measured, and here all are: no more than four are below the full one."""
    losses, groups, eliminations, original = measured(calibrated(Stream))
    group = next(group for group in groups if group.name == "in1")
    found, whole = [], original
    for width in range(5, 0, -1):
        with eliminations.cut_alone_(group, width):
            other = OriginalGraph.of(original.module, SHAPE)
        found.append(divergence(whole.module, other.module, images(60)))
    assert found[0] < 1e-9
    rising = [max(found[: place + 1]) for place in range(5)]
    assert [losses.widths["in1"][width] for width in range(5, 0, -1)] == pytest.approx(rising, rel=1e-4, abs=1e-9)


def test_a_width_that_only_loses_a_copy_is_worth_as_much_as_all():
    model = calibrated(Stream)
    stem = next(group for group in trace(model, SHAPE).groups if group.name == "stem")
    copy_channel_(model, stem, 0, 5)
    losses, *_ = measured(model)
    assert losses.widths["stem"][5] < 0.05 * losses.widths["stem"][4]


def test_only_candidates_and_the_full_width_are_measured():
    losses, *_ = measured(
        calibrated(Stream),
        candidates={"stem": (2, 6), "in0": (3,), "in1": (5,), "in2": (1, 4), "down": (8,), "out2": (8,)},
    )
    assert set(losses.widths["in0"]) == {3, 5}
    assert set(losses.widths["stem"]) == {2, 6}
    assert losses.widths["in1"] == {5: 0.0}


def test_branches_lose_what_the_network_without_them_loses_once_their_neighbours_make_up_for_it():
    model = calibrated(Stream)
    branches = find_branches(model, trace(model, SHAPE))
    losses, _, _, original = measured(model, branches)
    assert set(losses.branches) == {branch.name for branch in branches} == {"out0", "out1", "out2"}
    alone = {name: divergence(original.module, original.cut({}, [name]).module, images(60)) for name in losses.branches}
    assert all(0 < loss <= alone[name] * (1 + 1e-6) for name, loss in losses.branches.items())
    assert losses.branches["out1"] < 0.5 * alone["out1"]


def test_a_branch_that_adds_nothing_loses_nothing():
    model = calibrated(Stream)
    with torch.no_grad():
        model.out1_bn.weight.zero_()
        model.out1_bn.bias.zero_()
    branches = find_branches(model, trace(model, SHAPE))
    losses, *_ = measured(model, branches)
    assert losses.branches["out1"] < 1e-3 * losses.branches["out0"]


@given(st.integers(2, 300), st.data())
def test_of_the_candidates_the_smallest_and_three_others_are_measured(full, data):
    candidates = data.draw(st.lists(st.integers(1, full), min_size=1, unique=True))
    below = sorted(width for width in candidates if width < full)
    found = worth._evenly_spaced(full, candidates)
    assert len(found) == len(set(found)) == min(len(below), worth.MEASURED_WIDTHS)
    assert set(found) <= set(below)
    assert found[:1] == below[:1]
    assert found[-1:] == (below[-1:] if len(below) > 1 else below)


def test_widths_near_those_measured_before_are_not_measured_again():
    model = calibrated(Stream)
    original, groups = OriginalGraph.of(model, SHAPE), free_groups(trace(model, SHAPE))
    eliminations = Eliminations(original, groups, images(60), "catro", Silent())
    meter = LossMeter(original, eliminations, (images(60), images(60)), MemoryLimit(2**30), macs=10**6)
    group = next(group for group in groups if group.name == "stem")  # 6 channels: only an equal width is near
    known = eliminations.measurements.width_losses

    def measure(*widths):
        losses = meter.measure([group], {"stem": widths}, (), Silent())
        return losses.widths["stem"]

    first = measure(2, 4, 6)
    assert set(known) == {("stem", 2), ("stem", 4)}
    again = measure(2, 3, 4, 6)
    assert set(known) == {("stem", 2), ("stem", 3), ("stem", 4)}
    assert {width: again[width] for width in first} == first


@pytest.mark.parametrize(
    ("width", "known", "near"),
    [
        (50, (), False),
        (50, (37, 62), True),  # 12 of 96
        (50, (37, 63), False),
        (40, (41, 80), False),  # below all: the loss would be that at 41
        (42, (41, 80), True),
    ],
)
def test_a_loss_follows_from_near_widths_unless_all_are_wider(width, known, near):
    assert worth._is_near(width, known, 96) is near


def test_between_measured_widths_losses_follow_the_errors():
    points, errors = {8: 0.0, 4: 0.3, 2: 0.5}, {8: 0.0, 6: 0.1, 4: 0.2, 3: 0.3, 2: 0.4}
    expected = {8: 0.0, 6: 0.15, 4: 0.3, 3: 0.4, 2: 0.5}
    assert worth._interpolated(points, errors) == pytest.approx(expected)


def test_a_width_that_was_measured_better_than_a_wider_one_is_worth_no_more():
    found = worth._interpolated({8: 0.0, 4: 0.3, 2: 0.1}, {8: 0.0, 4: 0.2, 2: 0.4})
    assert found == pytest.approx({8: 0.0, 4: 0.3, 2: 0.3})


def test_as_many_images_are_taken_as_the_measurements_may_take():
    assert worth.images_within(10**12, 130) == worth.FEWEST_IMAGES
    assert worth.images_within(1, 0) == worth.MOST_IMAGES
    assert worth.images_within(int(worth.MACS / 100 / 20), 20) == 100


def test_gram_matrices_are_free_again_when_worth_is_measured():
    _, _, eliminations, _ = measured(calibrated(Stream))
    assert "_inputs" not in vars(eliminations)
