"""What a plan records about its widths; depth, groups that stay, and other allocations."""

import re
from dataclasses import replace

import pytest

from catro_deploy.errors import BudgetError, MissedError
from catro_deploy.pruning.allocation import Decision, by_flops
from catro_deploy.pruning.solvers import Problem
from catro_deploy.pruning.values import full_widths
from catro_deploy.records import CostErrors
from catro_deploy.settings import PruneSettings
from tests.priced import BRANCH, Device, Wide, block, concatenation, decided, plan_of, pricing, scored, smooth, stairs


def test_the_plan_records_how_widths_were_chosen():
    errors = CostErrors(40, 0.9, 1.0, 0.03, 0.98)
    estimated = {"estimated": lambda widths: ["inner", "outer"], "errors": errors, "warnings": ("The profile is old.",)}
    wide = Wide(**estimated)
    decision = wide.decide("0.5x", wide.device(1.3, warnings=("The machine was busy.",)))
    plan = plan_of(decision)
    assert (decision.method, plan.how, plan.source, plan.errors, plan.gap) == (
        "greedy",
        "measured",
        "by hand",
        errors,
        None,
    )
    assert plan.original_us == wide.full_us
    assert plan.budget_us == 0.5 * wide.full_us
    assert plan.predicted_us == wide.predict(decision.widths)
    assert plan.staircases == wide.pricing.staircases
    assert len(plan.rounds) == 2
    assert plan.warnings == (
        "The profile is old.",
        "The predicted times of 2 layers are estimates: there is no measurement at their widths.",
        "Closed loop, round 2: The machine was busy.",
    )
    before, after = ({name: pair[place] for name, pair in plan.by_layer.items()} for place in (0, 1))
    assert before == wide.pricing.cost.by_layer(full_widths(wide.on))
    assert after == wide.pricing.cost.by_layer(decision.widths)


def test_an_exact_allocation_records_its_gap():
    wide = Wide(price=stairs, candidates={"stem": range(8, 65, 8), "inner": range(8, 129, 8)})
    decision = wide.decide("0.5x", wide.device(), allocation="auto")
    assert decision.method == "exact"
    assert 0 <= plan_of(decision).gap <= 0.005


def test_where_nothing_can_be_measured_the_estimate_decides():
    wide = Wide()
    decision = wide.decide("0.5x", None)
    assert plan_of(decision).rounds == ()
    assert 0.97 * 0.5 * wide.full_us <= wide.predict(decision.widths) <= 0.5 * wide.full_us
    with pytest.raises(MissedError, match=r"0\.001x.*\(estimate\)"):
        wide.decide("0.001x", None)


def test_what_is_no_faster_is_not_offered_as_a_budget():
    wide = Wide()
    with pytest.raises(MissedError, match=r"0\.001x") as caught:
        wide.decide("0.001x", wide.device())
    assert "or more (--budget)" in caught.value.hint
    with pytest.raises(MissedError, match=r"0\.\d+x") as caught:
        wide.decide("0.001x", Device(lambda _: 1.1 * wide.full_us, lambda _: wide.full_us))
    assert "(--budget)" not in caught.value.hint
    assert "more images at a time (--batch)" in caught.value.hint


def test_a_miss_with_a_profile_of_another_original_asks_for_a_new_profile():
    wide = Wide()
    slower = Device(lambda widths: 2 * wide.predict(widths), lambda _: 2 * wide.full_us)
    with pytest.raises(MissedError, match=r"0\.001x.* -50% ") as caught:
        wide.decide("0.001x", slower)
    assert caught.value.hint == "Measure it again on a quiet machine: catro-deploy profile --force"


def test_a_miss_with_a_wrong_estimate_blames_the_estimate():
    wide = Wide()
    wide.pricing = replace(wide.pricing, how="estimate")
    copying = Device(lambda widths: 6 * wide.full_us + wide.predict(widths), lambda _: 7 * wide.full_us)
    with pytest.raises(MissedError, match=r"0\.6x was not met.* 0\.86\d .*measured.* estimate .* -86% ") as caught:
        wide.decide("0.6x", copying)
    assert "profile" not in f"{caught.value}"
    assert re.match(r"Allow 0\.8[67]x or more \(--budget\), or check the figures in \[gpu\]", caught.value.hint)


@pytest.mark.parametrize("allocation", ["exact", "greedy"])
def test_a_branch_that_adds_nothing_is_removed_first(allocation):
    # The budget has room for a wide stream or for the branch.
    candidates = {"stem": (16, 64), "inner": (128,)}
    idle = Wide(stairs, candidates, {BRANCH: 0.0})
    gone = idle.decide("0.3x", idle.device(), allocation=allocation)
    assert gone.widths == {"stem": 64, "inner": 0}
    plan = plan_of(gone)
    assert plan.by_layer["inner"][1] == plan.by_layer["outer"][1] == 0
    assert plan.predicted_us == pytest.approx(plan.by_layer["stem"][1] + plan.by_layer["fc"][1])
    useful = Wide(stairs, candidates, {BRANCH: 50.0})
    assert useful.decide("0.3x", useful.device(), allocation=allocation).widths == {"stem": 16, "inner": 128}


def test_a_budget_that_only_depth_meets():
    candidates = {"stem": range(16, 65, 16), "inner": range(16, 129, 16)}
    deep, flat = Wide(stairs, candidates, {BRANCH: 50.0}), Wide(stairs, candidates)
    least = flat.predict({"stem": 16, "inner": 16}) / flat.full_us
    assert deep.decide(f"{0.9 * least}x", deep.device()).widths["inner"] == 0
    with pytest.raises(MissedError, match=r"0\.\d+x") as caught:
        flat.decide(f"{0.9 * least}x", flat.device())
    assert "--depth" not in caught.value.hint  # it is the default
    assert caught.value.hint.endswith(", or fewer channels per group (--d-min, now 3).")
    with pytest.raises(MissedError) as caught:
        flat.decide(f"{0.9 * least}x", flat.device(), depth="never", d_min=1)
    assert caught.value.hint.endswith(", or the removal of residual branches (--depth auto).")


def test_groups_that_stay_are_counted_in_full():
    """The stream stays at 64 channels, because it is to be ignored: its layers are counted at full width."""
    network = block(64, 128)
    on = scored(network, fixed={"stem": "stem is to be ignored"})
    prices = pricing(network, on, smooth)
    # 64 * 9 / 1000 us for each pair of channels: 3 * 64 in stem, 2 * 64 * width in the branch; 64 * 4 / 1000 in fc.
    by_hand = {width: 0.576 * (3 * 64 + 2 * 64 * width) + 0.256 for width in (128, 50)}
    device = Device(prices.cost.predict, lambda _: by_hand[128])

    def decide(budget: str) -> Decision:
        return decided(Problem(network, on, PruneSettings(budget=budget)), prices, device)

    decision = decide(f"{by_hand[50] + 0.1}us")
    assert decision.widths == {"inner": 50}
    assert plan_of(decision).original_us == pytest.approx(by_hand[128])
    assert plan_of(decision).by_layer["stem"] == pytest.approx((0.576 * 3 * 64,) * 2)
    with pytest.raises(MissedError, match=r"\b100us\b"):
        decide("100us")  # the stem alone takes more


def test_an_exact_allocation_of_layers_on_three_groups_is_wrong_usage_not_a_miss():
    network = concatenation()
    on = scored(network)
    problem = Problem(network, on, PruneSettings(allocation="exact", budget="0.5x"))
    with pytest.raises(BudgetError, match=r"\bjoin\b"):
        decided(problem, pricing(network, on, smooth), None)


@pytest.mark.parametrize("allocation", ["flops", "uniform"])
def test_other_allocations_meet_a_latency_in_the_loop_too(allocation):
    wide = Wide()
    device = wide.device(1.25)
    decision = wide.decide("0.5x", device, allocation=allocation, d_min=8)
    assert decision.method == allocation
    assert 0.95 <= 1.25 * wide.predict(decision.widths) / (0.5 * wide.full_us) <= 1


@pytest.mark.parametrize(
    ("allocation", "method"),
    [("auto", "flops"), ("flops", "flops"), ("greedy", "flops"), ("exact", "exact"), ("uniform", "uniform")],
)
def test_by_multiply_accumulates_the_paper_decides_unless_set_otherwise(allocation, method):
    network = block()
    on = scored(network)
    decision = by_flops(Problem(network, on, PruneSettings(allocation=allocation, budget="40%flops")))
    assert (decision.method, decision.latency) == (method, None)
    stem, inner = decision.widths["stem"], decision.widths["inner"]
    macs = 64 * 9 * (3 * stem + 2 * stem * inner) + stem * 4
    whole = 64 * 9 * (3 * 16 + 2 * 16 * 32) + 16 * 4
    assert 0.3 * whole <= macs <= 0.4 * whole
