"""A moving average of a network's weights and buffers over the steps."""

import copy

import torch
from torch import nn

__all__ = ["MovingAverage", "decay_at"]


def decay_at(update: int, decay: float) -> float:
    """The decay at ``update`` (0, 1, ...): at most ``decay``, less at the beginning.

    The bound (1 + update) / (10 + update) lets the average leave the initial weights quickly, as in TensorFlow.
    """
    return min(decay, (1 + update) / (10 + update))


class MovingAverage:
    """Holds ``network``, a copy of the model in eval mode whose weights follow the model's.

    Batch norm's statistics are averaged like weights; integer buffers are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.network = copy.deepcopy(model).eval().requires_grad_(False)
        self._decay = decay
        own, theirs = self.network.state_dict(), model.state_dict()
        floating = [name for name, tensor in own.items() if tensor.is_floating_point()]
        # Both networks change their tensors in place, so one look-up serves all steps.
        self._averages = [own[name] for name in floating]
        self._weights = [theirs[name] for name in floating]
        self._counters = [(own[name], theirs[name]) for name in own.keys() - set(floating)]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the model's weights after ``step`` (0, 1, ...)."""
        torch._foreach_lerp_(self._averages, self._weights, 1 - decay_at(step, self._decay))
        for own, theirs in self._counters:
            own.copy_(theirs)
