"""torch.compile, where it works."""

from collections.abc import Callable

import torch
from torch import nn

from catro_deploy.progress import Progress
from catro_deploy.training.device import Hardware, suffers_channels_last

__all__ = ["compiled"]


def compiled(
    model: nn.Module, images: torch.Tensor, hardware: Hardware, progress: Progress
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The model compiled for training on batches like ``images`` (n, c, h, w), or as it is if compiling fails.

    Compiling happens at the first use, forward and backward, so both are tried here; buffers that they change, such as
    batch norm's statistics, are put back.
    """
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()
    try:
        fast: Callable[[torch.Tensor], torch.Tensor] = torch.compile(model, options=_options(model, hardware))
        with hardware.autocast():
            answers = fast(images)
        answers.float().sum().backward()  # type: ignore[no-untyped-call]
    except Exception as error:  # a compiler, its tool chain or the network's code: all may fail in their own ways
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        progress.note(f"torch.compile does not work here, training goes on without it: {reason}")
        return model
    finally:
        for name, buffer in model.named_buffers():
            buffer.data.copy_(before[name])
        model.zero_grad(set_to_none=True)
    return fast


def _options(model: nn.Module, hardware: Hardware) -> dict[str, str | int | bool | Callable[..., object]]:
    """Settings of the compiler, which brings convolutions into channels last by itself."""
    allowed = hardware.device.type != "cpu" or not suffers_channels_last(model)
    return {} if allowed else {"layout_optimization": False}
