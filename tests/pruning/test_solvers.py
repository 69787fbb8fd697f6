"""Allocations under a latency limit, with prices made by hand: against brute force, and on a staircase."""

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import GroupChoice, GroupValue, weigh
from catro_deploy.catro.greedy import greedy
from catro_deploy.errors import BudgetError
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.pruning.scoring import Scored
from catro_deploy.pruning.selection import values_of
from catro_deploy.pruning.solvers import Problem, Solver, exact_by_flops, measures_worth, solver_of
from catro_deploy.pruning.values import all_widths, full_widths, values_by_loss, values_for
from catro_deploy.reconstruction.worth import Losses
from catro_deploy.settings import PruneSettings
from tests.catro.tables import best, narrower_than_it_could_be
from tests.priced import BRANCH, block, concatenation, pricing, scored, smooth, stairs

STAIRS = {"stem": (3, 8, 15, 16), "inner": (3, 8, 15, 16, 24, 31, 32)}


def made(
    allocation: str, price=stairs, candidates=STAIRS, seed: int = 0, worth: float | None = None, **fields
) -> tuple:
    """The solver of the block, the values of its groups, and its prices."""
    network = block()
    on = scored(network, seed=seed)
    prices = pricing(network, on, price, candidates)
    settings = PruneSettings(allocation=allocation, **fields)
    worths = {} if worth is None else {BRANCH: worth}
    values = values_of(on, prices_candidates(prices), settings, worths)
    return solver_of(Problem(network, on, settings, worths), prices), values, prices.cost


def prices_candidates(prices) -> dict:
    return {name: stairs.candidates for name, stairs in prices.staircases.items()}


def full_cost() -> float:
    network = block()
    on = scored(network)
    return pricing(network, on, stairs).cost.predict(full_widths(on))


shares = st.floats(0.1, 1.0)
seeds = st.integers(0, 1000)


@examples(deadline=None, max_examples=30)
@given(shares, seeds, st.one_of(st.none(), st.floats(0, 2)))
def test_the_exact_allocation_is_the_best_and_greedy_is_never_better(share, seed, worth):
    limit = share * full_cost()
    solver, values, cost = made("exact", seed=seed, worth=worth)
    branches = [] if worth is None else [BRANCH]
    wanted = best(values, cost, limit, branches)
    if wanted is None:
        with pytest.raises(BudgetError):
            solver.solve(limit)
        return
    found = solver.solve(limit)
    assert found.cost == cost.predict(found.widths)
    assert found.cost <= limit
    assert found.value >= wanted - 0.005 * abs(wanted) - 1e-9  # the allowed gap
    assert found.value >= made("greedy", seed=seed, worth=worth)[0].solve(limit).value


@examples(deadline=None, max_examples=30)
@given(shares, seeds, st.sampled_from(["exact", "greedy"]), st.one_of(st.none(), st.floats(0, 2)))
def test_a_width_that_is_slower_than_a_wider_one_is_never_chosen(share, seed, allocation, worth):
    solver, values, cost = made(allocation, seed=seed, worth=worth)
    limit = max(share * full_cost(), solver.fastest.cost)
    found = solver.solve(limit)
    assert not {15, 31} & set(found.widths.values())
    assert narrower_than_it_could_be(values, cost, limit, found.widths) == []


def test_by_flops_the_staircase_is_not_seen():
    solver, _, _ = made("flops")
    found = [solver.solve(share * full_cost()).widths for share in (0.4, 0.5, 0.6, 0.7)]
    assert any(width % 8 for widths in found for width in widths.values())


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_by_flops_the_largest_share_within_the_latency_is_taken(share):
    network = block()
    on = scored(network)
    prices = pricing(network, on, smooth)
    limit = share * prices.cost.predict(full_widths(on))
    found = solver_of(Problem(network, on, PruneSettings(allocation="flops")), prices).solve(limit)
    # Latency is proportional to the multiply-accumulates here, so Algorithm 2 with a budget of them gives the same.
    flops = FlopsCost(network.layers, on.prunable)
    assert found.cost <= limit
    step = max(flops.change(found.widths, name, width + 1) for name, width in found.widths.items())
    assert flops.predict(found.widths) + step > 1000 * limit


def test_by_flops_a_budget_of_all_is_used_up():
    solver, _, _ = made("flops", price=smooth)
    assert solver.solve(1e9).widths == {"stem": 16, "inner": 32}


def test_uniform_is_one_share_for_all():
    solver, _, cost = made("uniform", price=smooth)
    full = cost.predict({"stem": 16, "inner": 32})
    found = solver.solve(0.3 * full)
    assert found.cost <= 0.3 * full
    assert found.widths["inner"] / 2 == pytest.approx(found.widths["stem"], abs=1)
    assert solver.fastest.widths == {"stem": 3, "inner": 3}


@pytest.mark.parametrize("allocation", ["exact", "greedy", "flops", "uniform"])
def test_too_small_a_limit_is_refused_and_the_fastest_costs_more(allocation):
    solver, _, _ = made(allocation)
    with pytest.raises(BudgetError):
        solver.solve(0.9 * solver.fastest.cost)
    assert solver.solve(solver.fastest.cost).cost <= solver.fastest.cost


def test_the_fastest_is_not_the_narrowest_where_that_is_slower():
    dear = {3: 900.0, 8: 300.0, 16: 500.0}  # more than inner and outer save with the narrower stream
    solver, _, _ = made(
        "auto",
        price=lambda layer, a, b: dear[b] if layer.name == "stem" else a + b,
        candidates={"stem": (3, 8, 16), "inner": (3, 8)},
    )
    assert solver.fastest.widths == {"stem": 8, "inner": 3}


def test_branches_that_may_be_removed_are_gone_in_the_fastest():
    solver, _, cost = made("auto", worth=5.0)
    assert solver.fastest.widths["inner"] == 0
    assert solver.fastest.cost == pytest.approx(cost.predict({"stem": solver.fastest.widths["stem"], "inner": 0}))


def test_bounds_of_the_settings_hold_on_the_staircase():
    solver, _, _ = made("greedy", d_min=8, max_width=0.5)
    assert solver.solve(1e9).widths == {"stem": 8, "inner": 16}
    assert solver.fastest.widths == {"stem": 8, "inner": 8}
    # No candidate of the stream is between 5 and 6: it gets the largest width allowed.
    solver, _, _ = made("greedy", d_min=5, max_width=0.4)
    assert solver.solve(1e9).widths["stem"] == 6


def test_all_widths_are_the_settings():
    on = scored(block())
    assert all_widths(on, PruneSettings(d_min=4, step=5, max_width=0.5)) == {"stem": (4, 8), "inner": (4, 9, 14, 16)}
    assert all_widths(on, PruneSettings(d_min=6, step=5, max_width=0.5, allocation="uniform"))["stem"] == (6, 7, 8)
    assert all_widths(on, PruneSettings(d_min=12, max_width=0.5))["stem"] == (8,)


@pytest.mark.parametrize(("allocation", "method"), [("auto", "greedy"), ("greedy", "greedy"), ("flops", "flops")])
def test_where_three_groups_meet_in_a_layer_greedy_allocates(allocation, method):
    network = concatenation()
    on = scored(network)
    solver = solver_of(Problem(network, on, PruneSettings(allocation=allocation)), pricing(network, on, smooth))
    assert solver.method == method
    assert solver.solve(1e9).widths == {"one": 8, "two": 8, "join": 8}


def test_an_exact_allocation_of_three_is_refused_at_once():
    network = concatenation()
    on = scored(network)
    with pytest.raises(BudgetError, match=r"(?s)\bjoin\b.*--allocation greedy"):
        solver_of(Problem(network, on, PruneSettings(allocation="exact")), pricing(network, on, smooth))


def test_auto_is_exact_where_layers_depend_on_two_groups():
    solver, _, _ = made("auto")
    assert isinstance(solver, Solver)
    assert solver.method == "exact"
    assert solver.solve(0.5 * full_cost()).gap is not None


@pytest.mark.parametrize("budget", ["50%flops", "0.5x", "400us"])
@pytest.mark.parametrize("criterion", ["catro", "l1"])
def test_worth_is_measured_for_latency_where_channels_are_chosen_by_what_reads_them(criterion, budget):
    for allocation in ("auto", "exact", "greedy", "flops", "uniform"):
        settings = PruneSettings(criterion=criterion, allocation=allocation, budget=budget)
        by_loss = budget != "50%flops" and criterion == "catro" and allocation in ("auto", "exact", "greedy")
        assert measures_worth(settings) == by_loss
        for worth in ("measured", "scatter"):
            asked = settings.model_copy(update={"worth": worth})
            assert measures_worth(asked) == (worth == "measured")
        for worth in ("auto", "measured", "scatter"):
            plain = settings.model_copy(update={"worth": worth, "reconstruct": False})
            assert not measures_worth(plain)


@pytest.mark.parametrize("allocation", ["auto", "exact", "greedy", "flops", "uniform"])
def test_worth_is_measured_where_classes_are_not_compared(allocation):
    settings = PruneSettings(criterion="obs", allocation=allocation)
    for budget in ("50%flops", "0.5x", "400us"):
        assert measures_worth(PruneSettings(criterion="obs", allocation=allocation, budget=budget))
    assert not measures_worth(settings.model_copy(update={"worth": "scatter"}))


def keeper(losses: dict[int, float], branch: float = 1.0) -> SimpleNamespace:
    """Each group at a width loses that entry of ``losses``, the network without its branch loses ``branch``."""
    return SimpleNamespace(
        losses=lambda candidates, branches: Losses(
            {name: {width: losses[width] for width in widths} for name, widths in candidates.items()},
            {one.name: branch for one in branches},
        )
    )


WIDTHS = {"stem": (4, 8, 16), "inner": (4, 8, 16)}


def test_a_width_is_worth_the_loss_that_it_spares():
    losses = keeper({4: 0.5, 8: 0.2, 16: 0.0}).losses(WIDTHS, ())
    stem, inner = values_by_loss(scored(block()), WIDTHS, losses, ())
    assert stem.choice.widths == inner.choice.widths == (4, 8, 16)
    assert list(stem.value) == pytest.approx([0, 0.3, 0.5])


def test_a_branch_is_worth_what_is_lost_without_it_and_widths_that_lose_more_nothing():
    losses = keeper({4: 0.9, 8: 0.2, 16: 0.0}, branch=0.6).losses(WIDTHS, (BRANCH,))
    _, inner = values_by_loss(scored(block()), WIDTHS, losses, (BRANCH,))
    assert inner.choice.widths == (0, 4, 8, 16)
    assert list(inner.value) == pytest.approx([0, 0, 0.4, 0.6])


@given(st.lists(st.floats(0, 10), min_size=3, max_size=3), st.one_of(st.none(), st.floats(0, 10)))
def test_more_channels_are_never_worth_less(losses, branch):
    branches = () if branch is None else (BRANCH,)
    measured = keeper(dict(zip((4, 8, 16), losses, strict=True)), branch or 0).losses(WIDTHS, branches)
    for value in values_by_loss(scored(block()), WIDTHS, measured, branches):
        assert value.value[0] == 0
        assert all(few <= many for few, many in itertools.pairwise(value.value))


@pytest.mark.parametrize("allocation", ["exact", "greedy", "flops", "uniform"])
def test_every_allocation_goes_by_measured_losses_where_there_are_no_scatters(allocation):
    network = block()
    on = dataclasses.replace(scored(network), scatters={})
    losses = {width: 1 / width for width in range(1, 33)}
    prices = pricing(network, on, smooth)
    problem = Problem(network, on, PruneSettings(allocation=allocation), keeper=keeper(losses))
    solver = solver_of(problem, prices)
    limit = 0.5 * prices.cost.predict(full_widths(on))
    assert solver.solve(limit).cost <= limit


def falling_losses(on, step: int = 1) -> list[GroupValue]:
    """Values of each group for losses equal to the square of its missing share of channels."""
    values = []
    for group in on.prunable:
        widths = tuple(range(3, group.width + 1, step))
        missing = 1 - np.array(widths) / group.width
        values.append(GroupValue(GroupChoice(group.name, widths, len(group.producers)), missing[0] ** 2 - missing**2))
    return values


@pytest.mark.parametrize(("network", "method"), [(block(64, 512), "exact"), (concatenation(), "greedy")])
def test_measured_worth_under_multiply_accumulates_uses_up_the_budget(network, method):
    on = scored(network)
    cost = FlopsCost(network.layers, on.prunable)
    limit = 0.5 * cost.predict(full_widths(on))
    values = falling_losses(on)
    found, widths = exact_by_flops(values, cost, limit, PruneSettings())
    assert found == method
    assert cost.predict(widths) <= limit
    assert narrower_than_it_could_be(values, cost, limit, widths) == []
    if method == "exact":
        with_a_step = exact(falling_losses(on, step=16), cost, limit)
        assert weigh(values, cost, widths).value >= 0.99 * with_a_step.value
    else:
        with pytest.raises(BudgetError, match=r"\bjoin\b"):
            exact_by_flops(values, cost, limit, PruneSettings(allocation="exact"))


def test_one_share_for_all_measures_nothing():
    network = block()
    on = Scored(scored(network).prunable, {}, {}, {})
    settings = PruneSettings(allocation="uniform")
    values = values_for(on, all_widths(on, settings), settings, {}, object())
    assert [(group.choice.name, float(group.value.max())) for group in values] == [("stem", 0.0), ("inner", 0.0)]


@pytest.mark.parametrize("share", [0.25, 0.35, 0.45, 0.6, 0.75, 0.9, 1.0])
def test_by_flops_no_later_network_on_the_path_is_within_the_limit(share):
    """A latency with steps rises and falls along the path: a bisection would end at any network that just fits."""
    network = block()
    on = scored(network)
    flops = FlopsCost(network.layers, on.prunable, network.other_macs)
    settings = PruneSettings(allocation="flops")
    solver, _, latency = made("flops")
    values = values_for(on, all_widths(on, settings), settings, {}, None)
    path = [dict(solver.smallest)]
    greedy(values, flops, np.inf, only_next=True, on_step=lambda changed: path.append(path[-1] | changed))
    found = solver.solve(share * full_cost())
    assert path[-1] == full_widths(on)
    within = [latency.predict(widths) <= share * full_cost() for widths in path]
    place = path.index(found.widths)
    assert within[place]
    assert not any(within[place + 1 :])
