"""Device, number format and memory layout of a training: the fastest according to measurements."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from catro_deploy.errors import SettingsError
from catro_deploy.training.striding import suffers_channels_last
from catro_deploy.training.world import local_gpu

__all__ = ["Hardware", "can_run", "choose_device", "choose_hardware"]


@dataclass(frozen=True)
class Hardware:
    """``dtype`` is that of convolutions under autocast; None keeps everything in float32."""

    device: torch.device
    dtype: torch.dtype | None
    memory_format: torch.memory_format

    @property
    def scales_loss(self) -> bool:
        """Whether gradients would underflow unless the loss is scaled."""
        return self.dtype == torch.float16

    def place(self, model: nn.Module) -> nn.Module:
        """Move ``model`` to the device and the memory format, in place, and return it."""
        return model.to(device=self.device, memory_format=self.memory_format)  # type: ignore[call-overload,no-any-return]

    def autocast(self) -> torch.autocast:
        """A context in which the forward pass runs."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None)


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return the device that settings specify; ``auto`` is the GPU if PyTorch sees one.

    Raises:
        SettingsError: ``cuda`` is requested, and PyTorch sees no GPU.
    """
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise SettingsError(
            f'compute = "cuda" was requested, but PyTorch {torch.__version__} sees no GPU.',
            'Set compute = "auto" or "cpu", or see what is missing: catro-deploy doctor',
        )
    return torch.device("cuda", local_gpu()) if available and wanted != "cpu" else torch.device("cpu")


def choose_hardware(
    model: nn.Module,
    wanted: Literal["auto", "cpu", "cuda"],
    amp: bool,
    input_shape: tuple[int, int, int] | None = None,
) -> Hardware:
    """Choose the hardware for ``model``; ``amp`` allows bfloat16 or float16 if the processor is fast with it.

    With the ``input_shape`` of its images (channels, height, width), format and layout are those in which it can run.

    Raises:
        SettingsError: ``cuda`` is requested, and PyTorch sees no GPU.
    """
    fastest = _fastest(model, choose_device(wanted), amp)
    if input_shape is None:
        return fastest
    plain = Hardware(fastest.device, None, torch.contiguous_format)
    in_order = (fastest, replace(plain, dtype=fastest.dtype), replace(fastest, dtype=None))
    return next((one for one in in_order if one == plain or can_run(model, one, input_shape)), plain)


def can_run(model: nn.Module, hardware: Hardware, input_shape: tuple[int, int, int]) -> bool:
    """Whether ``model`` can run on images of ``input_shape`` in the number format and layout of ``hardware``.

    Channels last is impossible if it flattens feature maps with ``view``, which requires channels to come before rows
    in memory, or if a weight has five axes, as that of a 3D convolution; and bfloat16 is if an operator has no kernel
    for it, as deformable convolutions on a CPU.
    """
    try:
        copied = hardware.place(copy.deepcopy(model)).eval()
        images = torch.zeros(2, *input_shape, device=hardware.device).contiguous(memory_format=hardware.memory_format)
        with torch.no_grad(), hardware.autocast():
            copied.forward(images)  # not copied(images): graph modules print their failures
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return False
    return True


def _fastest(model: nn.Module, device: torch.device, amp: bool) -> Hardware:
    if device.type == "cuda":
        torch.cuda.set_device(device)
        low = torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
        return Hardware(device, low if amp else None, torch.channels_last)
    in_bfloat16 = amp and _is_fast_in_bfloat16() and not _is_depthwise(model)
    return Hardware(device, torch.bfloat16 if in_bfloat16 else None, _cpu_memory_format(model))


def _capabilities() -> Mapping[str, object]:
    # Public only in releases newer than the oldest supported one.
    return torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}


def _is_amd() -> bool:
    return "AMD" in str(_capabilities().get("cpu_name"))


def _is_fast_in_bfloat16() -> bool:
    # The matrix tiles of AMX halve the time of a step. So does AVX-512's bfloat16 on AMD processors (from Zen 4 on); on
    # Intel processors without these tiles it made no step faster than float32.
    return bool(_capabilities().get("amx_bf16") or (_is_amd() and _capabilities().get("avx512_bf16")))


def _is_depthwise(model: nn.Module) -> bool:
    # Depthwise convolutions have no matrices to multiply: a step of MobileNets, EfficientNets and ShuffleNets took
    # 1.6 to 2.9 times as long with bfloat16, and 0.4 to 0.95 times as long in channels last.
    return any(1 < module.groups == module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d))


def _cpu_memory_format(model: nn.Module) -> torch.memory_format:
    # Channels last fills vector registers with channels. On Intel processors, a step in it took 1.3 to 2 times as long
    # with the odd widths of a pruned network (batch norm slowed down most), and 0.6 to 0.9 times as long with
    # multiples of 32. On AMD processors it took 0.6 to 0.9 times as long with either (benchmarks/training/layouts.py).
    if suffers_channels_last(model):
        return torch.contiguous_format
    if _is_depthwise(model) or _is_amd():
        return torch.channels_last
    widths = [module.out_channels for module in model.modules() if isinstance(module, nn.Conv2d)]
    even = sum(width % 32 == 0 for width in widths)
    return torch.channels_last if 2 * even > len(widths) else torch.contiguous_format
