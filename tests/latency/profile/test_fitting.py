"""Profiles of made-up times that follow a rule."""

from collections.abc import Mapping

import numpy as np
import pytest

from catro_deploy.agent.results import FactsResult
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.latency.profile.fitting import Measured, profile_from
from catro_deploy.latency.profile.samples import Timed
from catro_deploy.latency.profile.subject import Subject, opened
from catro_deploy.latency.table import TableCost
from tests.agent.measured import DEVICE
from tests.latency.profile.quick import SHAPE, USE, tiny_network

FACTS = FactsResult(DEVICE, "r 1")


@pytest.fixture(scope="module")
def subject():
    model = tiny_network()
    with opened(model, trace(model, SHAPE), USE, 18, [].append) as subject:
        yield subject


def layer_us(inputs: int, out: int) -> float:
    return 5.0 + 0.25 * inputs * out


def made(subject: Subject, widths: Mapping[str, int]) -> Timed:
    """Layer times by the rule; profiling adds 2 us to each node, and each inference takes 7 us more than its layers."""
    at = subject.cost.layer_widths(widths)
    nodes = {name: 1 + (out < 4) for name, (_, out) in at.items()}  # narrow layers are not fused
    alone = {name: layer_us(*at[name]) for name in at}
    layers = {name: (alone[name] + 2 * nodes[name], nodes[name]) for name in at}
    return Timed(layers, 7 + sum(alone.values()), 0.01)


def networks() -> list[dict[str, int]]:
    pairs = [{"conv1": a, "conv2": b} for a in (3, 6, 12) for b in (3, 8, 16)] * 3
    return [pairs[i] for i in np.random.default_rng(0).permutation(len(pairs))]


def test_the_rule_is_found(subject):
    some = networks()
    profile = profile_from(subject, Measured(some, [made(subject, w) for w in some], {}, 1.25), FACTS, 6)
    assert (profile.fit.slope, profile.fit.per_node_us, profile.fit.fixed_us) == pytest.approx((1, -2, 7), abs=0.01)
    assert profile.errors.networks == 6
    assert profile.errors.rmspe < 1e-3
    assert profile.original_us == pytest.approx(made(subject, {"conv1": 12, "conv2": 16}).whole_us, rel=1e-3)
    assert (profile.networks, profile.seconds, profile.disagreement) == (27, 1.2, 0.01)
    cost = TableCost(subject.network.layers, subject.groups, profile.shapes, profile.cells, profile.fit)
    assert cost.estimated({"conv1": 6, "conv2": 8}) == []


def test_held_out_networks_take_part_in_nothing_but_the_verdict(subject):
    """They took three times as long, which the fit does not know: its predictions for them are off by two thirds."""
    some = networks()
    timings = [made(subject, widths) for widths in some]
    held_out = 6
    judges = [i for i, widths in enumerate(some) if widths != subject.full][:held_out]  # the original is not pruned
    for i in judges:
        slow = {name: (3 * us, nodes) for name, (us, nodes) in timings[i].layers.items()}
        timings[i] = Timed(slow, 3 * (timings[i].whole_us or 0), 0.01)
    profile = profile_from(subject, Measured(some, timings, {}, 1.0), FACTS, held_out)
    others = [i for i in range(len(some)) if i not in judges]
    left = Measured([some[i] for i in others], [timings[i] for i in others], {}, 1.0)
    without = profile_from(subject, left, FACTS, 1)
    assert (profile.fit.slope, profile.fit.per_node_us, profile.fit.fixed_us) == pytest.approx((1, -2, 7), abs=0.01)
    assert profile.errors.rmspe == pytest.approx(2 / 3, abs=1e-3)
    assert profile.errors.within_10 == 0
    assert sum(cell.samples for of in profile.cells.values() for cell in of.values()) == (27 - held_out) * 4
    assert without.errors.rmspe < 1e-3


def test_only_networks_that_were_timed_as_a_whole_judge_and_are_fitted_on(subject):
    some = networks()
    timings = [made(subject, widths) for widths in some]
    timings = [t if i % 3 == 0 else Timed(t.layers, None, t.disagreement) for i, t in enumerate(timings)]
    profile = profile_from(subject, Measured(some, timings, {}, 1.0), FACTS, 40)
    assert profile.errors.networks == 3  # a third of nine, although more were requested
    assert profile.errors.rmspe < 1e-3


def test_a_handful_of_networks_still_leaves_some_to_fit_on(subject):
    some = [{"conv1": a, "conv2": b} for a in (3, 12) for b in (3, 16)]
    profile = profile_from(subject, Measured(some, [made(subject, w) for w in some], {}, 1.0), FACTS, 40)
    assert profile.errors.networks == 1
    assert np.isfinite(profile.original_us)
