"""Prices from a profile written by hand, and from the figures of devices that are not available."""

from dataclasses import replace
from itertools import pairwise

import pytest

from catro_deploy import resources
from catro_deploy.errors import TargetError
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.latency.pricing import CANDIDATES, NOISY, estimated_pricing, measured_pricing, profile_of
from catro_deploy.latency.profile import LatencyProfile
from catro_deploy.latency.table import Cell, Fit
from catro_deploy.models import build_model
from catro_deploy.progress import Silent
from catro_deploy.pruning.solvers import Problem, solver_of
from catro_deploy.pruning.values import full_widths
from catro_deploy.records import CostErrors, Staircase
from catro_deploy.settings import PruneSettings, QuantizeSettings, Settings
from catro_deploy.targets import load_target
from catro_deploy.transports.execution import use_of
from tests.latency.profile.quick import PROTOCOL, SHAPE, USE, tiny_network
from tests.priced import block, scored

STREAM, INNER = (8, 16), (8, 16, 32)
ELSEWHERE = [name for name in resources.names("targets") if load_target(name).gpu is not None]


def profile() -> LatencyProfile:
    """A profile of tests.priced.block: a layer takes 1 us per input and per output channel, inner twice that."""
    widths = {"stem": ((3,), STREAM), "inner": (STREAM, INNER), "outer": (INNER, STREAM), "fc": (STREAM, (4,))}
    cells = {
        f"shape of {name}": {
            (a, b): Cell((a + b) * (2.0 if name == "inner" else 1.0), 1.0, 0.02, 3) for a in inputs for b in outputs
        }
        for name, (inputs, outputs) in widths.items()
    }
    return LatencyProfile(
        target="x86-cpu",
        device={"cpu_model": "Some CPU", "runtime": "onnxruntime 1.0"},
        fingerprint={"precision": "fp32"},
        network="block",
        measured="2026-01-02",
        seconds=12.0,
        networks=99,
        disagreement=0.03,
        original_us=0.0,
        shapes={name: f"shape of {name}" for name in widths},
        staircases={"stem": Staircase((), STREAM, 8), "inner": Staircase((), INNER, 8)},
        fit=Fit(slope=0.5, per_node_us=1.0, fixed_us=7.0),
        errors=CostErrors(40, 0.8, 0.99, 0.03, 0.98),
        cells=cells,
    )


def test_a_profile_prices_by_what_was_measured():
    network = block()
    found = measured_pricing(network, scored(network).prunable, profile())
    assert (found.how, found.errors, found.warnings) == ("measured", profile().errors, ())
    assert found.source == "latency profile of 2026-01-02: 99 networks in fp32 on Some CPU, onnxruntime 1.0"
    assert found.staircases == profile().staircases
    by_layer = {"stem": 0.5 * 11 + 1, "inner": 0.5 * 2 * 40 + 1, "outer": 0.5 * 40 + 1, "fc": 0.5 * 12 + 1}
    widths = {"stem": 8, "inner": 32}
    assert found.cost.by_layer(widths) == pytest.approx(by_layer)
    assert found.cost.predict(widths) == pytest.approx(7 + sum(by_layer.values()))
    assert found.cost.predict({"stem": 8, "inner": 0}) == pytest.approx(7 + by_layer["stem"] + by_layer["fc"])


def test_groups_that_are_not_to_be_pruned_are_priced_in_full():
    network = block()
    inner = scored(network, fixed={"stem": "as it is"})
    found = measured_pricing(network, inner.prunable, profile())
    whole = measured_pricing(network, scored(network).prunable, profile())
    assert found.cost.predict({"inner": 8}) == whole.cost.predict({"stem": 16, "inner": 8})


def test_widths_without_a_measurement_are_reported():
    network = block()
    found = measured_pricing(network, scored(network).prunable, profile())
    assert found.estimated({"stem": 8, "inner": 32}) == []
    assert found.estimated({"stem": 8, "inner": 20}) == ["inner", "outer"]
    assert found.estimated({"stem": 9, "inner": 0}) == ["stem", "fc"]


def test_a_noisy_profile_is_reported():
    network = block()
    noisy = replace(profile(), disagreement=NOISY + 0.03)
    (warning,) = measured_pricing(network, scored(network).prunable, noisy).warnings
    assert "its rounds differ by 13%" in warning
    assert "catro-deploy profile --force" in warning


def test_many_kinds_of_devices_are_elsewhere():
    assert {"jetson-orin", "jetson-thor", "x86-gpu", "x86-gpu-t4", "x86-gpu-h100"} <= set(ELSEWHERE)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_estimate_says_so_and_its_staircases_are_those_of_its_prices(name):
    target, network = load_target(name), block(64, 192)
    on = scored(network)
    found = estimated_pricing(network, on.prunable, target, use_of(target, Settings()), d_min=3)
    assert (found.how, found.errors) == ("estimate", None)
    assert found.source == f"roofline of {target.title}"
    (warning,) = found.warnings
    assert f"Latency on {name} is an estimate" in warning
    assert "nothing was measured" in warning
    assert found.estimated(full_widths(on)) == []
    for group in on.prunable:
        stairs = found.staircases[group.name]
        swept = dict(stairs.swept)
        assert stairs.candidates[-1] == max(swept) == group.width
        assert len(stairs.candidates) <= CANDIDATES
        # Each candidate is faster than every wider width, in the whole network as well as in the affected layers.
        for narrow, wide in pairwise(stairs.candidates):
            assert swept[narrow] < min(us for width, us in stairs.swept if width > narrow)
            narrower, wider = ({**full_widths(on), group.name: width} for width in (narrow, wide))
            gained = found.cost.predict(wider) - found.cost.predict(narrower)
            assert gained == pytest.approx(swept[wide] - swept[narrow])


def test_integers_are_priced_as_such_and_budgets_are_of_what_the_original_takes_now():
    network = trace(build_model("cifar_resnet20", 8), (3, 32, 32))
    on, target = scored(network), load_target("jetson-orin")
    own = use_of(target, Settings())
    integers = use_of(target, Settings(quantize=QuantizeSettings(precision="int8")))
    assert (integers.precision, integers.own_precision) == ("int8", "fp16") == ("int8", own.precision)
    half, eighth = (estimated_pricing(network, on.prunable, target, use, d_min=3) for use in (own, integers))
    assert eighth.original_us == half.original_us == half.cost.predict(full_widths(on))
    assert eighth.cost.predict(full_widths(on)) < eighth.original_us


def test_half_of_the_estimated_latency_of_a_resnet():
    network = trace(build_model("cifar_resnet20", 8), (3, 32, 32))
    on, target = scored(network), load_target("jetson-orin")
    found = estimated_pricing(network, on.prunable, target, use_of(target, Settings()), d_min=3)
    full_us = found.cost.predict(full_widths(on))
    solver = solver_of(Problem(network, on, PruneSettings()), found)
    assert solver.fastest.cost < full_us
    half = (solver.fastest.cost + full_us) / 2
    chosen = solver.solve(half)
    assert chosen.cost <= half
    assert all(width in found.staircases[name].candidates for name, width in chosen.widths.items())


def test_a_device_whose_figures_are_not_known_cannot_be_estimated():
    target = load_target("x86-cpu").model_copy(update={"transport": "ssh"})
    network = block()
    with pytest.raises(TargetError, match="50%flops"):
        estimated_pricing(network, scored(network).prunable, target, use_of(target, Settings()), d_min=3)


def test_a_profile_serves_those_who_ask_for_no_more(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path))

    def ask(**changes: object) -> LatencyProfile:
        protocol = PROTOCOL.model_copy(update=changes)
        model = tiny_network()
        return profile_of(model, trace(model, SHAPE), USE, protocol, Silent(), opset=18)

    first = ask()
    assert ask(rounds=2, squares=1) == first
    assert ask(rounds=4).protocol["rounds"] == 4
    assert ask().protocol["rounds"] == 4
