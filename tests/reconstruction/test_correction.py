"""A made-up network of two branches and a stream, whose combined losses are not the sum of the separate ones."""

import pytest

from catro_deploy.catro.gains import Allocation
from catro_deploy.progress import Silent
from catro_deploy.reconstruction.correction import NETWORKS, corrected, dropped_by, predicted_loss
from catro_deploy.reconstruction.worth import Losses
from catro_deploy.records import Branch

ONE, TWO = Branch("one.out", ("one",), ()), Branch("two.out", ("two",), ())
BRANCHES = (ONE, TWO)
LOSSES = Losses(
    {"stream": {8: 0.5, 16: 0.0}, "one": {4: 0.3, 8: 0.0}, "two": {4: 0.3, 8: 0.0}}, {"one.out": 0.1, "two.out": 0.1}
)
BOTH_GONE = {"stream": 16, "one": 0, "two": 0}
ONE_GONE = {"stream": 16, "one": 0, "two": 4}
NARROW = {"stream": 8, "one": 8, "two": 8}


def allocation(widths):
    return Allocation(widths, cost=1.0, value=0.0)


def best_of(*networks):
    """An allocator that returns the network with the least predicted loss."""
    return lambda losses: allocation(min(networks, key=lambda widths: predicted_loss(losses, BRANCHES, widths)))


def test_what_a_network_loses_is_the_sum_of_its_dropped_branches_and_narrowed_groups():
    assert dropped_by(ONE_GONE, BRANCHES) == [ONE]
    assert predicted_loss(LOSSES, BRANCHES, ONE_GONE) == pytest.approx(0.1 + 0.3)
    assert predicted_loss(LOSSES, BRANCHES, BOTH_GONE) == pytest.approx(0.2)
    assert predicted_loss(LOSSES, BRANCHES, NARROW) == pytest.approx(0.5)


def test_branches_that_lose_much_more_together_are_not_dropped_together():
    real = {0: 2.0, 4: 0.42}
    found = corrected(LOSSES, BRANCHES, best_of(BOTH_GONE, ONE_GONE), lambda widths: real[widths["two"]], Silent())
    assert best_of(BOTH_GONE, ONE_GONE)(found).widths == ONE_GONE
    assert found.widths == LOSSES.widths


def test_where_the_sum_is_right_nothing_is_corrected():
    def real(widths):
        return 1.05 * predicted_loss(LOSSES, BRANCHES, widths)

    assert corrected(LOSSES, BRANCHES, best_of(BOTH_GONE, ONE_GONE), real, Silent()) is LOSSES


def test_a_correction_that_leads_to_a_worse_network_is_not_taken():
    real = {0: 2.0, 4: 3.0}
    found = corrected(LOSSES, BRANCHES, best_of(BOTH_GONE, ONE_GONE), lambda widths: real[widths["two"]], Silent())
    assert best_of(BOTH_GONE, ONE_GONE)(found).widths == BOTH_GONE


def test_without_dropped_branches_narrowed_groups_lose_more():
    other = {"stream": 16, "one": 4, "two": 4}
    real = {8: 0.9, 16: 0.65}
    found = corrected(LOSSES, BRANCHES, best_of(NARROW, other), lambda widths: real[widths["stream"]], Silent())
    assert best_of(NARROW, other)(found).widths == other
    assert found.branches == LOSSES.branches


def test_no_more_networks_are_measured_than_allowed():
    measured = []

    def real(widths):
        measured.append(widths["two"])
        return {0: 30.0, 8: 5.0}[widths["two"]]

    found = corrected(LOSSES, BRANCHES, best_of(BOTH_GONE, ONE_GONE), real, Silent(), most=1)
    assert (measured, found) == ([0], LOSSES)


def test_few_networks_are_built_and_none_twice():
    built = []

    def real(widths):
        built.append(tuple(widths.items()))
        return 100.0

    networks = [{"stream": 16, "one": 0, "two": 4 + place} for place in range(12)]
    losses = Losses(
        {"stream": {16: 0.0}, "one": {8: 0.0}, "two": {4 + place: 0.01 * place for place in range(12)}},
        {"one.out": 0.1, "two.out": 0.1},
    )
    corrected(losses, BRANCHES, best_of(*networks), real, Silent())
    assert len(built) == len(set(built)) <= NETWORKS
