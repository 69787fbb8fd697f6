"""The criterion for comparison, checked against explicit least squares."""

import torch

from benchmarks.accuracy.criteria_ratio import _State


def test_the_predicted_loss_is_that_of_explicit_least_squares():
    torch.manual_seed(0)
    labels = torch.arange(400) % 4
    rows = torch.randn(400, 6, dtype=torch.float64) + torch.randn(4, 6, dtype=torch.float64)[labels]
    rows -= rows.mean(0)
    weights = torch.randn(6, 5, dtype=torch.float64)
    means = torch.stack([rows[labels == label].mean(0) for label in range(4)]) / 2
    state = _State(rows.mT @ rows, weights, torch.arange(6)[:, None], means)
    expected = []
    for channel in range(6):
        rest = [other for other in range(6) if other != channel]
        found = torch.linalg.lstsq(rows[:, rest], rows @ weights).solution
        between = (means[:, rest] @ found).square().sum() / (means @ weights).square().sum()
        expected.append(1 - between)
    assert torch.allclose(state.lost(range(6)), torch.stack(expected), atol=5e-3)
