"""Budgets, as users write them."""

import pytest

from catro_deploy.errors import BudgetError
from catro_deploy.records import Budget


@pytest.mark.parametrize(("text", "fraction"), [("50%flops", 0.5), (" 9.25 % FLOPs", 0.0925), ("100%flops", 1.0)])
def test_shares_of_the_original(text, fraction):
    assert Budget.parse(text).fraction == pytest.approx(fraction)


def test_a_budget_reads_what_it_writes():
    assert Budget.parse(str(Budget(0.0925))) == Budget(0.0925)


@pytest.mark.parametrize("text", ["0%flops", "101%flops", "50%", "flops", "50%apples", "-3%flops", "nan%flops", ""])
def test_nonsense_is_refused_with_an_example(text):
    with pytest.raises(BudgetError, match="50%flops"):
        Budget.parse(text)
