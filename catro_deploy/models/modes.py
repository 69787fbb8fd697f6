"""PyTorch's modes, of a thread and of modules."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

__all__ = ["default_modes", "evaluated"]

# While a network is traced, torch.fx replaces methods of nn.Module, for all threads of the process.
_ONE_THREAD = threading.RLock()


@contextmanager
def default_modes() -> Iterator[None]:
    """Compute as outside of all modes in this block: without autocast and inference mode, and with gradients.

    The caller's modes are those of the caller's own work: they would change what a network computes, or leave tensors
    that cannot be trained. Other threads wait until the block ends.
    """
    with _ONE_THREAD, ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                # The outermost autocast alone empties the cache of converted weights, too late for a training.
                stack.enter_context(torch.autocast(device, enabled=False, cache_enabled=False))
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        yield


@contextmanager
def evaluated(network: nn.Module, device: torch.device) -> Iterator[nn.Module]:
    """Yield ``network`` on ``device``, in eval mode; afterwards it is where and in the modes that it was."""
    own = next((parameter.device for parameter in network.parameters()), device)
    training = {module: module.training for module in network.modules()}
    try:
        yield network.to(device).eval()
    finally:
        network.to(own)
        for module, was_training in training.items():
            module.training = was_training
