"""What is made of times on a GPU: staircases, a cost model, allocations; the clock is planted."""

import time
from collections.abc import Callable

import gpu_layers
import numpy as np
import pytest
import torch
from gpu import QUICK
from gpu_cost import candidates_of, cells_to_measure, choose_candidates, measure_cost, variants
from gpu_device import CpuDevice, Run, Sample, interleaved, settled
from gpu_layers import Bench, measure_layers
from gpu_network import Case, FoldedResNet
from gpu_reach import harmonic, measure_reach, values_for
from gpu_resnet import RESNET50, TINY
from gpu_staircase import in_order, measure_staircases, swept

from catro_deploy.catro.greedy import greedy
from catro_deploy.latency.layer_cost import LayerCost


def bench() -> Bench:
    device = CpuDevice()
    return Bench(device, QUICK, device.prepare(lambda: torch.zeros(64).exp()))


def test_candidates_by_hand():
    assert candidates_of(64, 7) == (8, 16, 24, 40, 48, 56, 64)
    assert candidates_of(2048, 3) == (704, 1344, 2048)  # multiples of 64 next to 682.7 and 1365.3
    assert candidates_of(8, 3) == (8,)


def test_cells_hold_every_layer_of_every_variant():
    of = bench()
    candidates = choose_candidates(of, 60)
    cells = {(TINY.shapes[c.step.name], c.inputs, c.outputs) for c in cells_to_measure(TINY, candidates, 1)}
    networks = variants(of, candidates)
    assert len(networks) == QUICK.networks
    assert {len(v.widths) for v in networks} == {len(TINY.groups)}
    for variant in networks:
        pairs = {step.name: TINY.channels(step, variant.widths) for step in TINY.steps}
        assert all((TINY.shapes[name], *pair) in cells for name, pair in pairs.items() if all(pair))
        assert variant.lacks_blocks or all(variant.widths.values())


def test_the_full_widths_of_every_shape_come_first():
    candidates = {name: candidates_of(width, 3) for name, width in RESNET50.widths.items()}
    shapes = set(RESNET50.shapes.values())
    first = cells_to_measure(RESNET50, candidates, 1)[: len(shapes)]
    assert {RESNET50.shapes[case.step.name] for case in first} == shapes
    assert all((case.inputs, case.outputs) == (case.step.in_channels, case.step.out_channels) for case in first)


def test_less_time_means_fewer_candidates():
    of = bench()
    of.scale = type(QUICK)(**{**vars(QUICK), "resnet": RESNET50, "candidates": (7, 5, 3)})
    of.layer_s = 0.1
    counts = [len(choose_candidates(of, seconds)["layer4.0.conv3"]) for seconds in (1000, 80, 1)]
    assert counts == [7, 5, 3]


def test_drift_is_divided_out():
    samples = [Sample((10.0, 20.0, 10.0), (1.0, 2.0, 1.0)), Sample((30.0, 60.0, 33.0), (1.0, 2.0, 1.0))]
    steady, shaken = settled(samples)
    assert (steady.us, steady.spread) == (10, 0)
    assert (shaken.us, shaken.spread) == (30, pytest.approx(0.1))


class SlowingDevice(CpuDevice):
    """A clock of its own: runs take what they return, longer and longer."""

    def __init__(self) -> None:
        self.asked = 0

    def times_us(self, run: Callable[[], float], count: int) -> np.ndarray:
        self.asked += 1
        return np.full(count, run() * (1 + 0.005 * self.asked))


def test_a_device_that_slows_down_does_not_change_what_is_measured():
    """Over 12 rounds it gets 0.5% slower with each visit, in the end by some 40%."""
    samples = interleaved(
        [lambda: 100.0, lambda: 200.0, lambda: 400.0], lambda: 50.0, SlowingDevice(), 12, 1000, np.random.default_rng(0)
    )
    timings = settled(samples)
    assert [timing.us / timings[0].us for timing in timings] == pytest.approx([1, 2, 4], rel=0.02)
    assert max(timing.spread for timing in timings) < 0.1


def test_no_layer_is_measured_when_the_time_is_up():
    cases = in_order(swept(TINY), bench())
    with torch.inference_mode():
        assert measure_layers(cases, bench(), time.monotonic() - 1) == {}


def test_coarse_widths_come_first():
    cases = in_order(swept(TINY), bench())
    narrow, wide = QUICK.swept
    assert len(cases) == len(set(cases)) == (wide - narrow + 1) * 2 * len(QUICK.batches)
    multiples = [next(d for d in (32, 8, 4, 1) if case.outputs % d == 0) for case in cases]
    assert multiples == sorted(multiples, reverse=True)


def layer_us(case: Case) -> float:
    """A staircase with stairs 8 wide, and a floor."""
    return 2.0 + 1e-5 * case.batch * case.step.layer.positions * case.step.layer.kernel * (
        -(-case.inputs // 8) * -(-case.outputs // 8) * 64
    )


class PlantedDevice(CpuDevice):
    """Computes nothing. A chain takes its layers' time, a network 0.5 us less for each layer, and 7 us more."""

    torch_device = torch.device("meta")

    def prepare(self, work: Run) -> Run:
        if isinstance(work, FoldedResNet):
            total_us = 7 + sum(layer_us(case) - 0.5 for case in work.cases.values())
            return lambda: total_us
        return work

    def times_us(self, run: Callable[[], float], count: int) -> np.ndarray:
        return np.full(count, run())


@pytest.fixture
def planted(monkeypatch) -> Bench:
    monkeypatch.setattr(
        gpu_layers, "chain", lambda case, repeats, device, fusion: lambda: float(layer_us(case) * repeats)
    )
    return Bench(PlantedDevice(), QUICK, lambda: 50.0)


def test_planted_staircases_are_found(planted):
    found = measure_staircases(planted, time.monotonic() + 60)
    assert len(found["curves"]) == 4
    for curve in found["curves"]:
        assert curve["period"] == 8
        assert set(curve["useful"]) == {8, 16, 24}
        assert curve["unaligned"] == pytest.approx([1, 1, 1])


def test_a_planted_cost_model_is_found_and_its_allocation_measured(planted):
    """Kernels of a layer: 1, but 2 of stem and classifier, so networks lose 0.5 us for all but two of them."""
    planted.fusion.otherwise = True
    with torch.inference_mode():
        model, found = measure_cost(2, planted, time.monotonic() + 60)
        reached = measure_reach(model, planted, time.monotonic() + 60)["modes"]
    assert found["cells_measured"] == found["cells_asked"]
    assert found["fit"] == pytest.approx({"slope": 1, "per_node_us": -0.5, "fixed_us": 8}, abs=0.05)
    errors = found["errors"]
    assert errors["table"]["all"]["rmspe"] < 0.001
    assert errors["table"]["all"]["rmspe"] < errors["sum_of_layers_alone"]["all"]["rmspe"]
    assert errors["table"]["width"]["networks"] + errors["table"]["width_and_depth"]["networks"] == 24
    for mode, of in reached.items():
        for turn in [of["smallest"], *of["rounds"]]:
            assert turn["measured"] == pytest.approx(turn["predicted"], rel=0.01)
        assert of["reached"] is None or of["reached"]["measured"] <= 0.5
        assert mode != "width" or of["smallest"]["blocks_gone"] == 0
    # Without any block there are stem, projections and classifier.
    us = {step.name: layer_us(Case(step, step.in_channels, step.out_channels, 2)) - 0.5 for step in TINY.steps}
    left = 7 + sum(us[name] for name in ("conv1", "layer1.0.downsample.0", "layer2.0.downsample.0", "fc"))
    assert reached["depth"]["smallest"]["measured"] == pytest.approx(left / (7 + sum(us.values())))
    assert reached["both"]["smallest"]["measured"] < reached["depth"]["smallest"]["measured"]
    assert reached["depth"]["smallest"]["blocks_gone"] == 3


def test_a_channel_is_worth_the_papers_gain_at_equal_scores():
    assert harmonic(0) == 0
    assert harmonic(3) == pytest.approx(1 + 1 / 2 + 1 / 3)
    candidates = {name: candidates_of(width, 3) for name, width in RESNET50.widths.items()}
    widths = {}
    for mode in ("width", "depth", "both"):
        values, branches = values_for(mode, RESNET50, candidates)
        widths[mode] = {value.choice.name: value.choice.widths for value in values}
        cost = LayerCost(RESNET50.layers, RESNET50.groups, lambda layer, a, b: layer.positions * layer.kernel * a * b)
        found = greedy(values, cost, 0.6 * cost.predict(RESNET50.widths), branches)
        assert cost.predict(found.widths) <= 0.6 * RESNET50.macs(RESNET50.widths)
    assert widths["width"]["layer1.1.conv1"] == candidates["layer1.1.conv1"]
    assert widths["depth"]["layer1.1.conv1"] == (0, 64)
    assert widths["depth"]["conv1"] == (64,)
    assert widths["both"]["layer1.1.conv1"] == (0, *candidates["layer1.1.conv1"])
    assert widths["both"]["conv1"] == candidates["conv1"]
