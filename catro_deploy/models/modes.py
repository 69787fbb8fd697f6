"""PyTorch's modes, which apply to everything that a thread computes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

__all__ = ["default_modes"]


@contextmanager
def default_modes() -> Iterator[None]:
    """Compute as outside of all modes in this block: without autocast and inference mode, and with gradients.

    The caller's modes are those of the caller's own work: they would change what a network computes, or leave tensors
    that cannot be trained.
    """
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                # The outermost autocast alone empties the cache of converted weights, too late for a training.
                stack.enter_context(torch.autocast(device, enabled=False, cache_enabled=False))
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        yield
