"""A workaround for a oneDNN bug with narrow strided convolutions."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["striding_first", "suffers_channels_last"]

# Channels in an AVX-512 vector; an AVX2 vector holds half as many.
VECTOR = 16


@contextmanager
def striding_first(model: nn.Module) -> Iterator[None]:
    """Within the block, narrow 1x1 convolutions of a ``model`` on a CPU stride before they convolve.

    They drop rows and columns first; the result is the same. With channels last, oneDNN's gradient of a strided 1x1
    convolution with fewer input channels than a vector holds is written past its workspace: it crashes, or gradients
    are wrong (oneDNN issue 6035, open as of version 3.14). Pruning creates such convolutions, above all in the
    shortcuts of ResNets.
    """
    on_cpu = [conv for conv in _narrow_and_strided(model) if conv.weight.device.type == "cpu"]
    convolutions = [conv for conv in on_cpu if _can_stride_first(conv)]
    for conv in convolutions:
        vars(conv)["_conv_forward"] = partial(_stride_first, conv)
    try:
        yield
    finally:
        for conv in convolutions:
            del vars(conv)["_conv_forward"]


def suffers_channels_last(model: nn.Module) -> bool:
    """Whether ``model`` has affected convolutions that ``striding_first`` does not handle."""
    return not all(_can_stride_first(conv) for conv in _narrow_and_strided(model))


def _narrow_and_strided(model: nn.Module) -> list[nn.Conv2d]:
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    return [
        conv
        for conv in convolutions
        if conv.in_channels < VECTOR and max(conv.kernel_size) == 1 and max(conv.stride) > 1
    ]


def _can_stride_first(conv: nn.Conv2d) -> bool:
    # Subclasses may convolve in their own way. Padding of a 1x1 kernel is not handled.
    return type(conv).forward is nn.Conv2d.forward and conv.padding == (0, 0)


def _stride_first(
    conv: nn.Conv2d, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    rows, columns = conv.stride
    return F.conv2d(images[:, :, ::rows, ::columns], weight, bias, groups=conv.groups)
