"""How far a network's answers are from the original's."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

__all__ = ["TEMPERATURE", "divergence", "divergence_of", "softened"]

TEMPERATURE = 2.0
"""Softens both answers: errors count before they change one."""


def divergence(original: nn.Module, other: nn.Module, images: Sequence[torch.Tensor]) -> float:
    """Mean KL(original || other) of the softened answers to normalised batches ``images``, in nats."""
    total, count = 0.0, 0
    with torch.inference_mode():
        for batch in images:
            total += float(divergence_of(softened(original(batch)), softened(other(batch))) * len(batch))
            count += len(batch)
    return total / max(count, 1)


def softened(logits: torch.Tensor) -> torch.Tensor:
    """Logarithms of the softened answers, float64 (n, classes)."""
    return functional.log_softmax(logits.double() / TEMPERATURE, dim=1)


def divergence_of(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Mean KL(expected || found) of two sets of ``softened`` answers."""
    return functional.kl_div(found, expected, reduction="batchmean", log_target=True)
