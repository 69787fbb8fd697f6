"""What the roofline knows of GPUs, and of how TensorRT's kernels use them: calibration/roofline/v100.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from catro_deploy import resources
from catro_deploy.errors import TargetError

__all__ = ["Gpu", "Kernels", "kernels_for", "load_kernels"]


class Gpu(Protocol):
    """The figures of a GPU; a multiply-add counts as two operations, without sparsity."""

    @property
    def sms(self) -> int:
        """Streaming multiprocessors."""

    @property
    def clock_mhz(self) -> float:
        """Their clock."""

    @property
    def fp32_flop_per_clock_per_sm(self) -> float:
        """Without tensor cores."""

    @property
    def fp16_flop_per_clock_per_sm(self) -> float:
        """With tensor cores."""

    @property
    def int8_flop_per_clock_per_sm(self) -> float:
        """With tensor cores where there are any for int8."""

    @property
    def bandwidth_gb_s(self) -> float:
        """Of memory, in 1e9 bytes a second."""

    @property
    def l2_mib(self) -> float | None:
        """Size of the L2 cache; None counts as none."""


@dataclass(frozen=True)
class Kernels:
    """How kernels of one precision use a GPU.

    Fields up to ``clock_mhz`` are known or were found by trial, the later ones are fitted.

    Input channels count as a multiple of ``in_multiple`` in arithmetic (``first_multiple`` for up to 4 of them), all
    channels as one of ``memory_multiple`` in memory. No tile is narrower than ``least_columns``. ``clock_mhz`` is the
    clock that the microseconds are of. A layer alone pays ``launch_us``, and ``layout_us`` for bringing tensors into
    the layout of its kernel. ``efficiency`` and ``bandwidth`` are shares of the peaks. ``feed`` bytes a clock reach the
    arithmetic of an SM, and each output takes ``store_cycles`` at the end. However small a layer, a block works as if
    on ``block_outputs`` outputs; on ``quick_outputs`` in the quick kernels that some layers have, whose arithmetic runs
    at ``quick_gain`` times the speed if they have several taps. ``winograd`` is the gain of 3x3 with stride 1.
    """

    element_bytes: int
    in_multiple: int
    first_multiple: int
    memory_multiple: int
    least_columns: int
    clock_mhz: float
    launch_us: float
    layout_us: float
    efficiency: float
    feed: float
    store_cycles: float
    block_outputs: float
    quick_outputs: float
    quick_gain: float
    winograd: float
    bandwidth: float
    depthwise_layout_us: float
    depthwise_efficiency: float
    depthwise_bandwidth: float


@cache
def load_kernels() -> Mapping[str, Kernels]:
    """The parameters by precision (fp32, fp16, int8), from calibration/roofline."""
    path = resources.find("calibration/roofline", "v100")
    content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    clock_mhz = content["gpu"]["clock_mhz"]
    return {precision: Kernels(clock_mhz=clock_mhz, **content[precision]) for precision in ("fp32", "fp16", "int8")}


def kernels_for(gpu: Gpu, precision: str) -> tuple[Kernels, float]:
    """The kernels that ``gpu`` would run in ``precision``, and its operations per clock and SM.

    The int8 kernels of the V100 use no tensor cores. A GPU with more operations in int8 than in fp16 has int8 tensor
    cores, and is assumed to use them as efficiently as the V100 uses those for fp16.

    Raises:
        TargetError: there is no estimate for this precision.
    """
    rates = {
        "fp32": gpu.fp32_flop_per_clock_per_sm,
        "fp16": gpu.fp16_flop_per_clock_per_sm,
        "int8": gpu.int8_flop_per_clock_per_sm,
    }
    if precision not in rates:
        raise TargetError(f"There is no estimate for {precision}.", f"There is one for {', '.join(rates)}.")
    if precision == "int8" and rates["int8"] > rates["fp16"]:
        return replace(load_kernels()["fp16"], element_bytes=1, memory_multiple=32), rates["int8"]
    return load_kernels()[precision], rates[precision]
