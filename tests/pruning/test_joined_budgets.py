"""Several budgets at once, and several devices: plain functions in place of the device and the file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat

import pytest

from catro_deploy.errors import MissedError
from catro_deploy.graph.onnx.footprint import Footprint
from catro_deploy.latency.candidate import CandidateLatency, Measured
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.latency.memory import PeakMemory, Step
from catro_deploy.latency.size import SizeCost
from catro_deploy.progress import Silent
from catro_deploy.pruning.allocation import Decision, by_flops, by_latency
from catro_deploy.pruning.budgets import Counted, Priced
from catro_deploy.pruning.solvers import Problem
from catro_deploy.pruning.values import full_widths
from catro_deploy.records import BudgetPlan, Speedup
from catro_deploy.settings import PruneSettings
from tests.priced import Widths, block, pricing, scored, smooth

WIDTHS = {"stem": range(4, 65, 2), "inner": range(4, 129, 4)}
FULL_BYTES, FULL_MEMORY = 700_000, 80_000


def stem_dear(layer, in_width, out_width):
    """A device on which the first layer costs ten times as much, and all others 0.3 times as much."""
    return smooth(layer, in_width, out_width) * (10 if layer.name == "stem" else 0.3)


@dataclass
class Bench:
    """Devices and a file whose figures are predictions times factors; ``asked`` lists the measured networks."""

    settings: Mapping[str, object]
    prices: tuple = (smooth,)
    factors: tuple[float, ...] = (1.0,)
    tail: float = 2.0
    delays_us: Iterator[float] = field(default_factory=lambda: repeat(0.0))
    warm: float | None = None
    mj_per_us: float | None = None
    size_factor: float = 1.0
    disturbed: bool = False
    asked: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network = block(64, 128)
        self.on = scored(self.network)
        self.full = full_widths(self.on)
        self.devices = [
            Priced(pricing(self.network, self.on, price, WIDTHS), f"device{place}" if len(self.prices) > 1 else "")
            for place, price in enumerate(self.prices)
        ]
        memory = PeakMemory((Step(0.0, {"stem": 200.0}), Step(3000.0, {"stem": 400.0, "inner": 400.0})))
        self.counted = Counted(
            FlopsCost(self.network.layers, self.on.prunable),
            self.network.macs,
            SizeCost(self.network.layers, self.on.prunable, "fp32", FULL_BYTES),
            memory,
            Footprint(FULL_BYTES, FULL_MEMORY),
        )

    def latency(self, place: int, widths: Widths) -> CandidateLatency:
        us = self.factors[place] * self.devices[place].pricing.cost.predict(widths)
        original = self.devices[place].pricing.original_us
        delay_us = next(self.delays_us)
        return CandidateLatency(
            us,
            original,
            Speedup(original / us, (0.99 * original / us, 1.01 * original / us)),
            (),
            samples_us=(
                tuple([us] * 98 + [us * self.tail + delay_us] * 2),
                tuple([original] * 98 + [original * self.tail + delay_us] * 2),
            ),
            sustained_us=None if self.warm is None else us * self.warm,
            disturbed=self.disturbed,
            energy_mj=None if self.mj_per_us is None else (us * self.mj_per_us, original * self.mj_per_us),
        )

    def footprint(self, widths: Widths) -> Footprint:
        assert self.counted.size is not None
        assert self.counted.memory is not None
        size = round(self.size_factor * self.counted.size.predict(widths))
        return Footprint(size, round(self.counted.memory.predict(widths)))

    def measure(self, widths: Widths) -> Measured:
        self.asked.append(dict(widths))
        times = tuple(self.latency(place, widths) for place in range(len(self.devices)))
        return Measured(times, self.footprint(widths))

    def decide(self, allocation: str = "exact") -> Decision:
        chosen = PruneSettings.model_validate({"allocation": allocation, **self.settings})
        problem = Problem(self.network, self.on, chosen)
        if not chosen.is_timed:
            return by_flops(problem, self.counted, self.measure, Silent())
        return by_latency(problem, self.devices, self.counted, self.measure, Silent())


def used(decision: Decision) -> dict[str, float]:
    """The measured share of each budget that is used."""
    return {" ".join(filter(None, [one.use, one.target, one.budget])): share_of(one) for one in decision.budgets}


def share_of(one: BudgetPlan) -> float:
    assert one.measured is not None
    assert one.most is not None
    return one.measured / one.most


def binding(decision: Decision) -> str:
    (only,) = [one for one in decision.budgets if one.binding]
    return only.budget


@pytest.mark.parametrize("allocation", ["exact", "greedy", "uniform", "flops"])
@pytest.mark.parametrize(
    ("limits", "binds"),
    [
        ({"budget": "0.3x", "max_size": "600kB"}, "0.3x"),
        ({"budget": "0.9x", "max_size": "150kB"}, "150kB"),
        ({"budget": "0.9x", "max_memory": "30kB"}, "30kB"),
        ({"budget": "0.9x, 20%flops"}, "20%flops"),
    ],
)
def test_all_budgets_are_met_and_the_one_that_binds_is_named(limits, binds, allocation):
    decision = Bench({**limits, "d_min": 8}).decide(allocation)
    assert max(used(decision).values()) <= 1
    assert binding(decision) == binds
    assert max(used(decision).values()) > 0.8


def test_under_multiply_accumulates_the_file_is_counted_too():
    bench = Bench({"budget": "60%flops", "max_size": "150kB"}, size_factor=1.1)
    decision = bench.decide("auto")
    assert decision.latency is None
    assert used(decision)["size 150kB"] <= 1
    assert binding(decision) == "150kB"
    assert len(bench.asked) > 1  # the first was larger than predicted


def test_a_percentile_is_met_though_only_the_median_is_predicted():
    # The 99th percentile is twice the median.
    full = Bench({}).devices[0].pricing.original_us
    bench = Bench({"budget": f"0.9x, {0.5 * full:.0f}us@p99"})
    decision = bench.decide()
    assert 0.93 <= used(decision)[f"latency {0.5 * full:.0f}us@p99"] <= 1
    assert len(bench.asked) == 2
    of_tail = next(one for one in decision.budgets if one.budget.endswith("@p99"))
    assert of_tail.predicted == pytest.approx(of_tail.measured, rel=1e-6)


def test_a_share_of_a_percentile_is_one_of_the_originals_own():
    assert 0.93 <= used(Bench({"budget": "0.5x@p99"}).decide())["latency 0.5x@p99"] <= 1


def test_delays_that_smaller_networks_have_as_well_are_not_taken_for_a_slow_network():
    """Each inference at the 99th percentile is interrupted: the rest of the budget is left for the network."""
    full = Bench({}).devices[0].pricing.original_us
    budget_us, delay_us = round(0.5 * full), 0.1 * full
    bench = Bench({"budget": f"{budget_us}us@p99"}, tail=1.0, delays_us=repeat(delay_us))
    decision = bench.decide()
    assert len(bench.asked) == 2
    assert 0.96 <= (bench.devices[0].pricing.cost.predict(decision.widths) + delay_us) / budget_us <= 1
    assert any("use 20% of the budget. On a quiet machine" in warning for warning in decision.latency.warnings)


def test_a_measurement_in_which_delays_alone_exceed_the_budget_is_repeated_and_corrects_nothing():
    full = Bench({}).devices[0].pricing.original_us
    bench = Bench({"budget": f"{0.5 * full:.0f}us@p99"}, tail=1.0, delays_us=chain([9 * full, 3 * full], repeat(0.0)))
    decision = bench.decide()
    assert bench.asked == [decision.widths] * 3
    assert max(used(decision).values()) >= 0.97
    assert not decision.latency.warnings


def test_delays_do_not_contradict_the_latency_model():
    """The first network is measured without delays and misses the budget; the second, at first, with long ones."""
    full = Bench({}).devices[0].pricing.original_us
    bench = Bench({"budget": f"{0.5 * full:.0f}us@p99"}, delays_us=chain([0.0, 9 * full], repeat(0.0)))
    decision = bench.decide()
    assert bench.asked[0] != bench.asked[1] == bench.asked[2] == decision.widths
    assert not any("latency model" in warning for warning in decision.latency.warnings)


def test_where_delays_alone_exceed_the_budget_no_network_is_cut_for_it():
    full = Bench({}).devices[0].pricing.original_us
    bench = Bench({"budget": "0.5x, 0.5x@p99"}, tail=1.0, delays_us=repeat(9 * full))
    with pytest.raises(MissedError, match=r"Delays alone use 18\d\.\d%") as caught:
        bench.decide()
    assert "quiet machine" in caught.value.hint
    assert len(bench.asked) == 2  # the second confirms the first


def test_a_percentile_missed_on_a_disturbed_machine_asks_for_a_quiet_one():
    bench = Bench({"budget": "1us@p99"}, disturbed=True)
    with pytest.raises(MissedError, match=r"^The budget 1us@p99 was not met in \d rounds\. The nearest") as caught:
        bench.decide()
    assert "quiet machine" in caught.value.hint


def test_latency_that_does_not_hold_when_warm_counts_as_it_is_then():
    bench = Bench({"budget": "0.5x"}, warm=1.2)
    decision = bench.decide()
    us = bench.devices[0].pricing.cost.predict(decision.widths)
    assert 0.93 <= 1.2 * us / (0.5 * bench.devices[0].pricing.original_us) <= 1


def test_energy_closes_the_loop():
    bench = Bench({"budget": "100%flops", "max_energy": "0.4x"}, mj_per_us=0.02)
    decision = bench.decide()
    assert 0.93 <= used(decision)["energy 0.4x"] <= 1
    assert binding(decision) == "0.4x"


def test_one_network_meets_its_budget_on_two_devices_that_are_slow_at_different_layers():
    bench = Bench({"budget": "0.5x"}, prices=(smooth, stem_dear), factors=(1.1, 0.95))
    decision = bench.decide()
    shares = used(decision)
    assert shares.keys() == {"latency device0 0.5x", "latency device1 0.5x"}
    assert max(shares.values()) <= 1
    assert max(shares.values()) >= 0.93
    alone = Bench({"budget": "0.5x"}, factors=(1.1,)).decide()
    assert bench.latency(1, alone.widths).candidate_us > 0.5 * bench.latency(1, alone.widths).original_us


def test_a_size_that_no_network_has_is_named_before_anything_is_measured():
    bench = Bench({"budget": "0.5x", "max_size": "1kB", "max_memory": "60kB"})
    with pytest.raises(MissedError, match=r"\b1kB of size\b.* [\d.,]+ kB \(predicted\)") as caught:
        bench.decide()
    assert caught.value.exit_code == 3
    assert "--max-size" in caught.value.hint
    assert not bench.asked


def test_what_is_missed_in_the_loop_names_the_budget_that_binds():
    bench = Bench({"budget": "0.9x, 1us@p99", "max_size": "600kB"})
    with pytest.raises(MissedError, match=r"600kB of size were.*: latency \(0\.9x, 1us@p99\) binds") as caught:
        bench.decide()
    assert caught.value.exit_code == 3
