"""Divergence of outputs, by hand."""

import math

import pytest
import torch
from torch import nn

from catro_deploy.reconstruction.loss import TEMPERATURE, divergence


class Outputs(nn.Module):
    """Returns fixed logits for each image; the first pixel selects them."""

    def __init__(self, logits: list[list[float]]) -> None:
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits[x[:, 0, 0, 0].long()]


def kl(p: list[float], q: list[float]) -> float:
    def softened(logits: list[float]) -> list[float]:
        shares = [math.exp(logit / TEMPERATURE) for logit in logits]
        return [share / sum(shares) for share in shares]

    return sum(a * math.log(a / b) for a, b in zip(softened(p), softened(q), strict=True))


def test_divergence_is_the_mean_over_all_images_however_they_are_batched():
    one, other = (
        [[1.0, 2.0, -1.0], [0.0, 0.0, 3.0], [5.0, 1.0, 1.0]],
        [[1.5, 1.0, 0.0], [0.0, 1.0, 3.0], [0.0, 1.0, 1.0]],
    )
    expected = sum(map(kl, one, other)) / 3
    images = torch.arange(3.0).view(3, 1, 1, 1)
    for batches in ([images], [images[:2], images[2:]]):
        assert divergence(Outputs(one), Outputs(other), batches) == pytest.approx(expected, rel=1e-6)


def test_outputs_that_differ_by_a_constant_are_the_same():
    images = [torch.zeros(1, 1, 1, 1)]
    assert divergence(Outputs([[1.0, 2.0]]), Outputs([[11.0, 12.0]]), images) == pytest.approx(0, abs=1e-12)
    assert divergence(Outputs([[1.0, 2.0]]), Outputs([[2.0, 1.0]]), images) > 0
    assert divergence(Outputs([[1.0, 2.0]]), Outputs([[2.0, 1.0]]), []) == 0


def test_networks_that_are_compared_leave_no_mode_behind():
    images = [torch.zeros(1, 1, 1, 1)] * 3
    divergence(Outputs([[1.0, 2.0]]), Outputs([[2.0, 1.0]]), images)
    assert not torch.is_inference_mode_enabled()
