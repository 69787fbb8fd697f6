"""Budgets, as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.budget import Budget, Budgets
from catro_deploy.errors import BudgetError


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("50%flops", 0.5, "flops"),
        (" 9.25 % FLOPs", 0.0925, "flops"),
        ("9.25%flops", 0.0925, "flops"),
        ("100%flops", 1.0, "flops"),
        ("0.5x", 0.5, "x"),
        (".5x", 0.5, "x"),
        ("1.X", 1.0, "x"),
        ("400us", 400.0, "us"),
        ("400 \u00b5s", 400.0, "us"),  # the micro sign
        ("400 \u03bcS", 400.0, "us"),  # the Greek letter, which some keyboards produce
        ("1.5ms", 1500.0, "us"),
        ("2000 ms", 2e6, "us"),
    ],
)
def test_what_may_be_used(text, amount, unit):
    assert Budget.parse(text) == Budget(amount, unit)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("50%flops", "50%flops"),
        ("7%flops", "7%flops"),
        ("9.25 % FLOPs", "9.25%flops"),
        (".50x", "0.5x"),
        ("1.5ms", "1500us"),
        ("2000ms", "2000000us"),  # no exponent: that could not be read again
        ("1234567.5us", "1234567.5us"),
    ],
)
def test_a_budget_is_written_in_one_way(text, written):
    assert str(Budget.parse(text)) == written


@given(st.sampled_from(["flops", "x", "us"]), st.floats(0, 1, exclude_min=True), st.floats(1, 1e12))
def test_a_budget_reads_what_it_writes(unit, share, us):
    budget = Budget(us if unit == "us" else share, unit)
    assert Budget.parse(str(budget)) == budget


def test_what_the_original_leaves():
    assert Budget.parse("25%flops").limit(1000) == 250
    assert Budget.parse("0.5x").limit(700.0) == 350.0
    assert Budget.parse("400us").limit(700.0) == 400.0
    assert Budget.parse("400us").limit(100.0) == 400.0


@pytest.mark.parametrize(
    "text",
    ["400", "0.5", "50%", "400s", "-1x", "nanx", "infx", "1e2us", "x", "flops", "50%apples", "0.5 y", "0.5xx", ""],
)
def test_nonsense_is_refused_with_examples(text):
    with pytest.raises(BudgetError, match=r"\bread\b[\s\S]*0\.5x .*400us, 1\.5ms, or 50%flops") as caught:
        Budget.parse(text)
    assert repr(text) in caught.value.problem
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["0x", "1.5x", "0us", "0.0ms", "0%flops", "101%flops", f"{'9' * 400}us"])
def test_nothing_and_too_much_are_refused(text):
    with pytest.raises(BudgetError, match="above 0") as caught:
        Budget.parse(text)
    assert repr(text) in caught.value.problem


@pytest.mark.parametrize(
    ("text", "budget", "written"),
    [
        ("900us@p99", Budget(900.0, "us", percentile=99), "900us@p99"),
        (" 0.5x @ p90 ", Budget(0.5, "x", percentile=90), "0.5x@p90"),
        ("400us@p50", Budget(400.0, "us"), "400us"),  # the median
    ],
)
def test_latency_counts_at_a_percentile(text, budget, written):
    assert Budget.parse(text) == budget
    assert str(budget) == written


@pytest.mark.parametrize("text", ["900us@p20", "900us@p100", "50%flops@p99", "900us@99", "@p99"])
def test_no_other_percentiles(text):
    with pytest.raises(BudgetError):
        Budget.parse(text)


@pytest.mark.parametrize(
    ("text", "of", "amount", "unit", "written"),
    [
        ("300kB", "size", 300e3, "bytes", "300kB"),
        ("0.25x", "size", 0.25, "x", "0.25x"),
        ("256 KiB", "memory", 256 * 1024.0, "bytes", "262.144kB"),
        ("3mJ", "energy", 3.0, "mJ", "3mJ"),
    ],
)
def test_sizes_memory_and_energy_have_budgets_of_their_own(text, of, amount, unit, written):
    assert Budget.parse(text, of) == Budget(amount, unit, of)
    assert str(Budget.parse(text, of)) == written
    assert Budget.parse(written, of) == Budget.parse(text, of)


@pytest.mark.parametrize(
    ("text", "of", "example"), [("400us", "size", "300kB"), ("50%flops", "memory", "256KiB"), ("2MB", "energy", "3mJ")]
)
def test_a_unit_of_something_else_is_refused_with_examples(text, of, example):
    with pytest.raises(BudgetError, match=rf"{text!r}.*\bread\b") as caught:
        Budget.parse(text, of)
    assert example in caught.value.hint


def test_several_budgets_are_joined_and_each_counts_once():
    joined = Budgets.parse("50%flops, 0.5x,900us@p99 , 0.5x")
    assert [str(one) for one in joined.parts] == ["50%flops", "0.5x", "900us@p99"]
    assert joined.main == Budget(0.5, "x")  # latency determines the widths, multiply-accumulates limit them
    assert Budgets.parse(str(joined)) == Budgets.parse(["50%flops", "0.5x, 900us@p99"]) == joined
    assert Budgets.parse("50%flops").main == Budget(0.5, "flops")
