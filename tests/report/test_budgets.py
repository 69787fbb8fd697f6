"""All budgets of a run, as far as they were measured, computed by hand."""

import re
from dataclasses import replace

import pytest

from catro_deploy.records import Budget, BudgetPlan, Soak
from catro_deploy.records.bench import Energy, EnergyUse, SoakWindow
from catro_deploy.report.budgets import asked_words, budget_figures, missed_words, planned_figures
from catro_deploy.report.cards import cards
from catro_deploy.report.code import reproduce_code
from catro_deploy.report.latency import budget_used
from catro_deploy.report.latency_tables import budgets_table
from catro_deploy.report.verdict import validity
from tests.report.made import make_bench, make_latency, make_plan, make_report, make_shipped, make_verify

MEDIAN = BudgetPlan("0.5x", "latency", 400.0, 800.0, 395.0, 390.0, binding=True)
TAIL = BudgetPlan("900us@p99", "latency", 900.0, 1600.0, 790.0, 800.0, binding=False)
SIZE = BudgetPlan("300kB", "size", 300e3, 1.2e6, 290e3, 295e3, binding=False)
MEMORY = BudgetPlan("64kB", "memory", 64e3, 128e3, 60e3, 60e3, binding=False)
MACS = BudgetPlan("50%flops", "MACs", 500.0, 1000.0, 490.0, 490.0, binding=False)
ENERGY = BudgetPlan("3mJ", "energy", 3.0, 6.0, 2.9, 2.9, binding=False)


def plan_with(*budgets, **changes):
    return make_plan(budget="0.5x", latency=make_latency(), budgets=budgets, **changes)


def by_name(figures):
    return {asked_words(one): one for one in figures}


def test_what_the_choice_of_widths_left():
    found = planned_figures(plan_with(MEDIAN, SIZE, MACS))
    assert [(one.measured, one.share, one.binding) for one in found] == [
        (390.0, 390 / 400, True),
        (295e3, 295 / 300, False),
        (490.0, 0.98, False),
    ]


def test_nothing_is_measured_before_the_bench_and_the_shipping():
    found = budget_figures(plan_with(MEDIAN, SIZE), None, None)
    assert [(one.measured, one.outcome, one.share) for one in found] == [
        (None, "not measured", 395 / 400),
        (None, "not measured", 290 / 300),
    ]


def test_the_figures_are_those_of_the_bench_and_of_the_file_that_is_shipped():
    bench = make_bench()
    shipped = make_shipped(bytes=301_000, original_bytes=1_200_000, memory_bytes=63_000, original_memory_bytes=128_000)
    found = by_name(budget_figures(plan_with(MEDIAN, TAIL, SIZE, MEMORY, MACS), bench, shipped))
    median = found["0.5x of latency"]
    assert median.measured == bench.pruned.p50_us
    assert median.most == 0.5 * bench.original.p50_us
    assert found["900us@p99 of latency"].measured == bench.pruned.p99_us
    assert found["900us@p99 of latency"].most == 900.0
    assert (found["300kB of size"].measured, found["300kB of size"].outcome) == (301_000, "missed")
    assert (found["64kB of memory"].measured, found["64kB of memory"].outcome) == (63_000, "met")
    assert (found["50%flops"].measured, found["50%flops"].outcome) == (490.0, "met")
    assert [name for name, one in found.items() if one.binding] == [max(found, key=lambda name: found[name].share)]


def test_what_is_missed_is_named_with_the_one_that_binds_first():
    shipped = make_shipped(bytes=600_000, original_bytes=1_200_000, memory_bytes=96_000, original_memory_bytes=128_000)
    found = budget_figures(plan_with(SIZE, MEMORY), None, shipped)
    size, memory = "300kB of size: 600.0 kB of 300.0 kB", "64kB of memory: 96.0 kB of 64.0 kB"
    said = f"Not met, measured: {size}; {memory}. 300kB of size binds."
    assert missed_words(found, ("size", "memory")) == said
    assert missed_words(found, ("latency",)) == ""


def test_latency_must_hold_at_the_end_of_a_soak():
    bench = make_bench()
    warm_us = 0.6 * bench.original.p50_us
    soak = Soak(120.0, warm_us, warm_us, (SoakWindow(0.0, 100, warm_us, warm_us),))
    found = by_name(budget_figures(plan_with(MEDIAN), replace(bench, soak=soak), None))
    sustained = found["0.5x of latency sustained"]
    assert (sustained.measured, sustained.outcome) == (warm_us, "missed")
    assert sustained.share == pytest.approx(1.2)
    assert missed_words(list(found.values()), ("latency",)).endswith("0.5x of latency sustained binds.")


@pytest.mark.parametrize(("mj", "outcome"), [(2.9, "met"), (3.05, "unsure"), (4.0, "missed")])
def test_energy_where_the_device_reports_it(mj, outcome):
    energy = Energy("VDD_IN", 1.0, EnergyUse(5.0, 6.0, 0.01), EnergyUse(5.0, mj, 0.01))
    (found,) = budget_figures(plan_with(ENERGY), replace(make_bench(), energy=energy), None)
    assert (found.measured, found.outcome) == (mj, outcome)
    (unknown,) = budget_figures(plan_with(ENERGY), make_bench(), None)
    assert unknown.outcome == "not measured"


def test_a_budget_of_a_percentile_alone_is_judged_by_that():
    bench = make_bench()
    share = bench.pruned.p99_us / bench.original.p99_us
    plan = replace(plan_with(replace(TAIL, budget="0.9x@p99")), budget="0.9x@p99")
    used = budget_used(plan, bench)
    assert (used.asked, used.used) == (0.9, pytest.approx(share))
    assert used.outcome == ("met" if share <= 0.9 else "unsure" if share <= 0.9 * 1.02 else "missed")
    assert Budget.parse(plan.budget).percentile == 99


def test_one_budget_has_no_table_and_several_have_one():
    assert budgets_table(make_report(plan=plan_with(MEDIAN))) is None
    table = budgets_table(make_report(plan=plan_with(MEDIAN, SIZE)))
    assert table is not None
    assert [row[0] for row in table.rows] == ["0.5x of latency", "300kB of size"]


def test_the_command_that_repeats_it_has_all_budgets():
    settings = {"budget": "0.5x, 900us@p99", "max_size": "300kB", "max_memory": None}
    code = reproduce_code(make_report(plan=plan_with(MEDIAN, SIZE, settings=settings)))
    assert "--budget '0.5x, 900us@p99' --max-size 300kB" in code
    assert "--max-memory" not in code


def test_headline_and_card_cover_all_budgets():
    """The median is met at 0.49x of 2,000 us; the second budget allows a fifth of what is measured."""
    bench, verify = make_bench(2.05, 2.04, 2.06), make_verify(0.98, 0.98)
    loose, tight = (replace(TAIL, budget=budget) for budget in ("1000000us@p99", "1us@p99"))
    met, missed = (
        make_report(plan_with(MEDIAN, other), verify, bench, shipped=make_shipped()) for other in (loose, tight)
    )
    assert met.verdict.endswith("; both budgets met")
    assert validity(met) == "The figures are valid. Keep in mind:"
    assert re.search(r"; budget 0\.5x met: .*; OVER BUDGET: 1us@p99 of latency: .* of 1\.0 us$", missed.verdict)
    assert validity(missed) == "The figures are valid, and miss the request. Keep in mind:"
    (good,) = [card for card in cards(met) if card.name == "Budget 0.5x"]
    (bad,) = [card for card in cards(missed) if card.name == "Budget 0.5x"]
    assert (good.tone, bad.tone, bad.lines[-1]) == ("good", "bad", "MISSED: 1us@p99 of latency")


def test_a_budget_before_the_one_that_chose_the_widths_is_covered():
    """The main budget is the first of latency, wherever it stands in the request."""
    over = replace(MACS, measured=900.0)
    content = make_report(plan_with(over, MEDIAN), make_verify(0.98, 0.98), make_bench(2.05, 2.04, 2.06))
    assert content.verdict.endswith("; OVER BUDGET: 50%flops: 900 of 500")
    assert content.verdict.count("0.5x") == 1
    (card,) = [card for card in cards(content) if card.name == "Budget 0.5x"]
    assert (card.tone, card.lines[-1]) == ("bad", "MISSED: 50%flops")


def test_one_budget_is_named_once():
    assert "budgets" not in make_report(plan_with(MEDIAN), make_verify(0.98, 0.98), make_bench()).verdict
