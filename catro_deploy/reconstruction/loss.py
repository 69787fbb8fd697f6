"""How far a network's answers are from the original's."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

__all__ = ["TEMPERATURE", "divergence"]

TEMPERATURE = 2.0
"""Softens both answers: errors count before they change one."""


def divergence(original: nn.Module, other: nn.Module, images: Sequence[torch.Tensor]) -> float:
    """Mean KL(original || other) of the softened answers to normalised batches ``images``, in nats."""
    total, count = 0.0, 0
    with torch.inference_mode():
        for batch in images:
            expected, found = (network(batch).double() / TEMPERATURE for network in (original, other))
            total += float(divergence_of(expected, found) * len(batch))
            count += len(batch)
    return total / max(count, 1)


def divergence_of(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Mean KL of two sets of logits (n, classes)."""
    theirs, ours = functional.log_softmax(expected, dim=1), functional.log_softmax(found, dim=1)
    return functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)
