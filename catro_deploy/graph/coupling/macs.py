"""Multiply-accumulates of a whole network: layers, attention, recurrent layers, products of feature maps."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["count_macs"]


def count_macs(model: nn.Module, input_shape: tuple[int, int, int]) -> int:
    """Multiply-accumulates of ``model`` (eval mode) for one image of ``input_shape`` (channels, height, width).

    Convolutions and matrix products are counted by torch.utils.flop_counter. It sees into some recurrent layers only,
    depending on their kind and the device: they count each weight once per time step instead.
    """
    counter = FlopCounterMode(display=False)
    recurrent = 0

    def leave_out(module: nn.Module, given: tuple[Any, ...]) -> None:
        nonlocal recurrent
        recurrent += counter.get_total_flops() // 2

    def count(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:  # noqa: ANN401 - a hook
        nonlocal recurrent
        sequence = args[0] if args else kwargs["input"]
        steps = sequence[..., 0].numel() if isinstance(sequence, torch.Tensor) else sequence.data.shape[0]
        weights = sum(weight.numel() for weight in module.parameters() if weight.ndim > 1)
        recurrent += steps * weights - counter.get_total_flops() // 2

    layers = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    hooks = [layer.register_forward_pre_hook(leave_out) for layer in layers]
    hooks += [layer.register_forward_hook(count, with_kwargs=True) for layer in layers]
    image = torch.zeros(1, *input_shape, device=next(model.parameters()).device)
    try:
        with torch.no_grad(), _plain_attention(), counter:
            model.eval()(image)
    finally:
        for hook in hooks:
            hook.remove()
    return int(counter.get_total_flops()) // 2 + recurrent


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Run torch's attention as separate products, since not every release counts its CPU kernels."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
