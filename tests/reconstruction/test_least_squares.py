import pytest
import torch

from catro_deploy.errors import NumericsError
from catro_deploy.reconstruction import least_squares
from catro_deploy.reconstruction.least_squares import Moments, damped, factored, solve_from_rows


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def measured(rows, targets):
    moments = Moments(rows.shape[0], rows.shape[2], targets.shape[2], rows.device)
    for start in range(0, rows.shape[1], 7):  # in several pieces, the last one short
        moments.add(rows[:, start : start + 7], targets[:, start : start + 7])
    return moments


@pytest.mark.parametrize("bias", [True, False])
def test_the_closed_form_is_least_squares_on_augmented_rows(bias):
    rows, targets, before = drawn(1, 40, 5), drawn(1, 40, 3, seed=1), drawn(1, 5, 3, seed=2)
    ridge = 0.1
    found, offset = measured(rows, targets).solve(before, bias=bias, ridge=ridge)

    # A ridge is equivalent to extra rows, sqrt(ridge * mean diagonal) * identity, with the old weights as targets.
    x, t = rows[0], targets[0]
    centred = x - x.mean(0) if bias else x
    strength = (ridge * (centred.T @ centred).diagonal().mean()).sqrt()
    ones = torch.ones(len(x), 1, dtype=x.dtype) if bias else torch.zeros(len(x), 0, dtype=x.dtype)
    augmented = torch.cat(
        [torch.cat([x, ones], 1), torch.cat([strength * torch.eye(5), torch.zeros(5, ones.shape[1])], 1)]
    )
    expected = torch.linalg.lstsq(augmented, torch.cat([t, strength * before[0]])).solution
    torch.testing.assert_close(found[0], expected[:5])
    torch.testing.assert_close(offset[0], expected[5] if bias else torch.zeros(3, dtype=x.dtype))


def test_groups_are_problems_of_their_own():
    rows, targets, before = drawn(3, 30, 4), drawn(3, 30, 2, seed=1), drawn(3, 4, 2, seed=2)
    found, offset = measured(rows, targets).solve(before, bias=True)
    for group in range(3):
        one = slice(group, group + 1)
        alone = measured(rows[one], targets[one]).solve(before[one], bias=True)
        torch.testing.assert_close((found[one], offset[one]), alone)


@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_give_the_same_by_the_smaller_system(bias):
    rows, targets, before = drawn(1, 12, 30), drawn(1, 12, 4, seed=1), drawn(1, 30, 4, seed=2)
    expected = measured(rows, targets).solve(before, bias=bias)
    found, offset = solve_from_rows(rows[0], targets[0], before[0], bias=bias)
    torch.testing.assert_close(found, expected[0][0], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(offset, expected[1][0], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("block", [1, 3, 4, 10])
def test_gram_matrices_are_whole_whatever_is_computed_at_a_time(monkeypatch, block):
    monkeypatch.setattr(least_squares, "GRAM_BLOCK", block)
    rows = drawn(2, 40, 10)
    found = measured(rows, drawn(2, 40, 1)).gram()
    torch.testing.assert_close(found, rows.mT @ rows)


def test_what_is_explained_is_one_less_the_share_of_the_squared_error():
    rows, targets, weights = drawn(1, 50, 4), drawn(1, 50, 2, seed=1), drawn(1, 4, 2, seed=2)
    offset = drawn(1, 2, seed=3)
    lost = (targets - rows @ weights - offset[:, None]).square().sum()
    total = (targets - targets.mean(1, keepdim=True)).square().sum()
    assert measured(rows, targets).explained(weights, offset) == pytest.approx(float(1 - lost / total))


def test_moments_of_what_some_columns_put_out():
    rows, weights = drawn(1, 50, 6), drawn(1, 6, 2, seed=2)
    outputs = rows[0][:, 2:5] @ weights[0][2:5]
    mean, variance = measured(rows, drawn(1, 50, 2)).output_moments(weights, slice(2, 5))
    torch.testing.assert_close(mean[0], outputs.mean(0))
    torch.testing.assert_close(variance[0], outputs.var(0, correction=0))


@pytest.mark.parametrize("columns", [torch.zeros(1, 10, 3), torch.ones(1, 10, 3)])
def test_columns_that_say_nothing_leave_the_weights_as_they_are(columns):
    before = drawn(1, 3, 2)
    found, offset = measured(columns.double(), drawn(1, 10, 2)).solve(before, bias=True)
    torch.testing.assert_close(found, before)
    assert torch.isfinite(offset).all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("mean", "spread"), [(30, 1e-2), (300, 1e-2), (3000, 0), (3e4, 1.0)])
def test_columns_that_hardly_vary_are_distinguished_in_float32(mean, spread, bias):
    rows = (mean + spread * drawn(1, 512, 9)).float()
    targets, before = drawn(1, 512, 2, seed=1).float(), drawn(1, 9, 2, seed=2) / mean
    found, offset = measured(rows, targets).solve(before, bias=bias)
    exact, _ = measured(rows.double(), targets.double()).solve(before, bias=bias)
    torch.testing.assert_close(found, exact, atol=1e-3 * float(exact.abs().max()), rtol=0)
    assert torch.isfinite(offset).all()


def test_a_matrix_that_rounding_has_made_indefinite_is_factored():
    factor = factored(torch.tensor([[[1.0, 1.0], [1.0, 1.0 - 1e-7]], [[2.0, 0.0], [0.0, 2.0]]], dtype=torch.float64))
    torch.testing.assert_close(
        factor @ factor.mT, torch.tensor([[[1.0, 1], [1, 1]], [[2, 0], [0, 2]]]).double(), atol=1e-5, rtol=0
    )


def test_what_is_not_finite_is_reported():
    with pytest.raises(NumericsError):
        damped(torch.full((1, 2, 2), torch.nan, dtype=torch.float64))


@pytest.mark.parametrize(("constant", "explained"), [(0.1, 1.0), (0.2, 0.0)])
def test_of_targets_that_never_change_all_is_explained_or_nothing(constant, explained):
    targets = torch.full((1, 21, 2), 0.1)
    moments = measured(torch.zeros(1, 21, 3), targets)
    assert moments.explained(torch.zeros(1, 3, 2).double(), torch.full((1, 2), constant)) == explained


def test_float32_rows_give_nearly_the_weights_of_float64():
    rows, targets, before = drawn(1, 400, 20), drawn(1, 400, 3, seed=1), drawn(1, 20, 3, seed=2)
    exact, _ = measured(rows, targets).solve(before, bias=True)
    rounded, _ = measured(rows.float(), targets.float()).solve(before, bias=True)
    torch.testing.assert_close(rounded, exact, atol=1e-5, rtol=1e-5)


def test_a_damped_gram_matrix_of_zeros_can_be_inverted():
    assert torch.isfinite(damped(torch.zeros(1, 3, 3, dtype=torch.float64)).inverse()).all()
