"""The roofline's figures of GPUs, and of how TensorRT's kernels use them: calibration/roofline/v100.toml."""

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
        """Number of streaming multiprocessors."""

    @property
    def clock_mhz(self) -> float:
        """Clock of the streaming multiprocessors."""

    @property
    def fp32_flop_per_clock_per_sm(self) -> float:
        """Operations in fp32, without tensor cores."""

    @property
    def fp16_flop_per_clock_per_sm(self) -> float:
        """Operations in fp16, with tensor cores."""

    @property
    def int8_flop_per_clock_per_sm(self) -> float:
        """Operations in int8, with tensor cores if the GPU has any for int8."""

    @property
    def bandwidth_gb_s(self) -> float:
        """Memory bandwidth, in 1e9 bytes per second."""

    @property
    def l2_mib(self) -> float | None:
        """Size of the L2 cache; None counts as no cache."""


@dataclass(frozen=True)
class Kernels:
    """How kernels of one precision use a GPU.

    Fields up to ``clock_mhz`` are known or were found by trial; the later ones are fitted.

    Arithmetic pads input channels to a multiple of ``in_multiple`` (``first_multiple`` for up to 4 of them); memory
    pads all channels to a multiple of ``memory_multiple``. No tile is narrower than ``least_columns``. Microseconds
    are at ``clock_mhz``. A layer timed alone takes ``launch_us``, and ``layout_us`` to convert tensors to the layout
    of its kernel. ``efficiency`` and ``bandwidth`` are shares of the peaks. ``feed`` bytes per clock reach the
    arithmetic units of an SM, and each output takes ``store_cycles`` at the end. However small the layer, a block takes
    as long as for ``block_outputs`` outputs, or for ``quick_outputs`` in the quick kernels that some layers have. The
    arithmetic of quick kernels with several taps runs at ``quick_gain`` times the speed. ``winograd`` is the gain of
    3x3 kernels with stride 1.
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
        raise TargetError(f"There is no estimate for {precision}.", f"Estimates are available for {', '.join(rates)}.")
    if precision == "int8" and rates["int8"] > rates["fp16"]:
        return replace(load_kernels()["fp16"], element_bytes=1, memory_multiple=32), rates["int8"]
    return load_kernels()[precision], rates[precision]
