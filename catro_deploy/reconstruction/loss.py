"""How far a network's outputs are from the original's."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn
from torch.nn import functional

__all__ = ["TEMPERATURE", "divergence", "divergence_from", "softened", "softened_outputs"]

TEMPERATURE = 2.0
"""Softens both outputs, so that errors count before they change a prediction."""


def softened_outputs(module: nn.Module, images: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The softened outputs of ``module`` to normalised batches ``images``."""
    for batch in images:
        with torch.inference_mode():
            found = softened(module(batch))
        yield found


def divergence(original: nn.Module, other: nn.Module, images: Sequence[torch.Tensor]) -> float:
    """Mean KL(original || other) of the softened outputs to normalised batches ``images``, in nats."""
    return divergence_from(softened_outputs(original, images), softened_outputs(other, images))


def divergence_from(expected: Iterable[torch.Tensor], found: Iterable[torch.Tensor]) -> float:
    """Mean KL(expected || found) of softened outputs, batch by batch (n, classes), in nats."""
    total, count = 0.0, 0
    for wanted, given in zip(expected, found, strict=True):
        total += float(functional.kl_div(given, wanted, reduction="sum", log_target=True))
        count += len(wanted)
    return total / max(count, 1)


def softened(logits: torch.Tensor) -> torch.Tensor:
    """Logarithms of the softened outputs, float64 (n, classes)."""
    return functional.log_softmax(logits.double() / TEMPERATURE, dim=1)
