"""Latency of a network on a GPU that cannot be reached, from the GPU's figures: an estimate, never a measurement.

Its purpose is to compare widths of one network before anything can be measured. docs/roofline.md has its errors on the
GPU that it was fitted on and on others; networks without convolutions are out of scope.

A convolution is modelled as the matrix product that computes it: ``rows`` (outputs of one channel over the whole batch)
by out-channels, with an inner dimension of ``taps * in-channels``. Each thread block computes one tile of it, and the
streaming multiprocessors (SMs) process the blocks in waves. Meanwhile tensors pass through memory, or through the L2
cache if the layer's tensors fit into it.

The parameters were fitted on convolutions timed one by one on a V100 (calibration/roofline/).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from catro_deploy.latency.kernels import Gpu, Kernels, kernels_for
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.records import Group, Layer

__all__ = ["Conv", "RooflineCost", "alone_us", "queued_us"]

Floats = NDArray[np.float64]

# Tiles of outputs, [rows, columns], as in NVIDIA's libraries.
TILES = np.array([(rows, columns) for rows in (32, 64, 128, 256) for columns in (32, 64, 128, 256)], float)
# Blocks that share an SM and hide each other's latency.
RESIDENT = 2
# A first layer reads at most this many channels, and has its own kernels.
FIRST_CHANNELS = 4
# 2155 GB/s from the L2 cache of a V100 with 80 SMs at 1.53 GHz: Jia et al., arXiv:1804.06826.
L2_BYTES_PER_CLOCK_PER_SM = 17.6
# V100, a kernel of 2.9 us: 9.6 us per kernel if the host waits for each, 3.8 us if kernels are queued.
# NVIDIA, "Getting Started with CUDA Graphs".
ALONE_EXTRA_US = 9.6 - 3.8
NETWORK_US = 9.6 - 2.9


@dataclass(frozen=True)
class Conv:
    """Convolutions, or linear layers with one tap: each field is a number, or an array with one entry per layer.

    ``rows`` counts outputs of one channel over the batch. ``addition``: whether a residual addition runs in the same
    kernel.
    """

    rows: ArrayLike
    in_channels: ArrayLike
    out_channels: ArrayLike
    taps: ArrayLike = 1
    stride: ArrayLike = 1
    groups: ArrayLike = 1
    addition: ArrayLike = False
    depthwise: bool = False


def alone_us(conv: Conv, gpu: Gpu, kernels: Kernels, rate: float) -> Floats:
    """Latency of a layer timed alone, in microseconds. ``rate``: operations per clock and SM at its precision."""
    if conv.depthwise:
        return kernels.launch_us + kernels.depthwise_layout_us + _depthwise_us(conv, gpu, kernels)
    return kernels.launch_us + _dense_us(conv, gpu, kernels, rate, kernels.layout_us)


def queued_us(conv: Conv, gpu: Gpu, kernels: Kernels, rate: float) -> Floats:
    """What a layer adds to the latency of a network whose kernels are queued, in microseconds.

    Its tensors already have the layout that its kernel expects. What remains of the launch is work of the GPU, which
    scales with its clock.
    """
    launch_us = max(kernels.launch_us - ALONE_EXTRA_US, 0.0) * kernels.clock_mhz / gpu.clock_mhz
    work = _depthwise_us(conv, gpu, kernels) if conv.depthwise else _dense_us(conv, gpu, kernels, rate, 0.0)
    return launch_us + work


def _dense_us(conv: Conv, gpu: Gpu, kernels: Kernels, rate: float, layout_us: float) -> Floats:
    """The faster of the usual kernels and the quick ones.

    Quick ones exist at stride 1 for 3x3 kernels and, without an addition, for kernels of up to 25 taps.
    """
    taps, stride = np.asarray(conv.taps), np.asarray(conv.stride)
    memory = _memory_us(conv, gpu, kernels)
    usual = layout_us + np.hypot(_compute_us(conv, gpu, kernels, rate, quick=False), memory)
    quick = np.hypot(_compute_us(conv, gpu, kernels, rate, quick=True), memory)
    has_quick = (stride == 1) & ((taps == 9) | (~np.asarray(conv.addition, bool) & (taps <= 25)))
    return np.where(has_quick, np.minimum(usual, quick), usual)


def _compute_us(conv: Conv, gpu: Gpu, kernels: Kernels, rate: float, quick: bool) -> Floats:
    """Time of the arithmetic with the best tile."""
    groups, taps = _column(conv.groups), _column(conv.taps)
    inputs = _column(conv.in_channels) / groups
    multiple = np.where(inputs <= FIRST_CHANNELS, kernels.first_multiple, kernels.in_multiple)
    # Quick kernels transform 5x5 into no more products than a 3x3 kernel has.
    depth = _up(inputs, multiple) * (np.minimum(taps, 9) if quick else taps)
    gain = np.where((taps == 9) & (_column(conv.stride) == 1), kernels.winograd, 1.0)
    if quick:
        gain = gain * np.where(taps > 1, kernels.quick_gain, 1.0)
    rows, columns = TILES[TILES[:, 1] >= kernels.least_columns].T
    blocks = groups * np.ceil(_column(conv.rows) / rows) * np.ceil(_column(conv.out_channels) / groups / columns)
    on_one_sm = np.ceil(blocks / gpu.sms)
    least = 2 * (kernels.quick_outputs if quick else kernels.block_outputs) / rate
    waiting = np.ceil(on_one_sm / RESIDENT) * depth * least
    arithmetic = 2 * rows * columns / (rate * kernels.efficiency)
    feeding = (rows + columns) * kernels.element_bytes / kernels.feed
    busy = on_one_sm * (depth * (arithmetic + feeding) / gain + kernels.store_cycles * rows * columns)
    times: Floats = np.maximum(waiting, busy).min(axis=-1) / gpu.clock_mhz
    return times


def _memory_us(conv: Conv, gpu: Gpu, kernels: Kernels) -> Floats:
    """Time to move inputs, weights and outputs, and the other operand of an addition."""
    inputs, outputs, taps = np.asarray(conv.in_channels), np.asarray(conv.out_channels), np.asarray(conv.taps)
    pad = np.where(inputs <= FIRST_CHANNELS, min(FIRST_CHANNELS, kernels.memory_multiple), kernels.memory_multiple)
    read = _up(inputs, pad)
    written = _up(outputs, kernels.memory_multiple)
    moved = _inputs_read(conv) * read + np.asarray(conv.rows) * written * (1.0 + np.asarray(conv.addition, bool))
    weights = read / np.asarray(conv.groups) * written * taps
    memory = gpu.bandwidth_gb_s * 1e3 * kernels.bandwidth
    passing = _passing_us(moved * kernels.element_bytes, gpu, memory)
    together: Floats = passing + weights * kernels.element_bytes / memory
    return together


def _depthwise_us(conv: Conv, gpu: Gpu, kernels: Kernels) -> Floats:
    """One convolution per channel: tensor cores do not help in any precision."""
    outputs = np.asarray(conv.rows) * np.asarray(conv.out_channels)
    per_clock = gpu.sms * gpu.fp32_flop_per_clock_per_sm * kernels.depthwise_efficiency
    compute = 2 * outputs * np.asarray(conv.taps) / per_clock / gpu.clock_mhz
    moved = (_inputs_read(conv) * np.asarray(conv.in_channels) + outputs) * kernels.element_bytes
    memory = _passing_us(moved, gpu, gpu.bandwidth_gb_s * 1e3 * kernels.depthwise_bandwidth)
    together: Floats = np.hypot(compute, memory)
    return together


def _inputs_read(conv: Conv) -> Floats:
    """Inputs of one channel over the batch: all, except for a strided 1x1 kernel, which skips rows."""
    rows, stride = np.asarray(conv.rows, float), np.asarray(conv.stride)
    read: Floats = rows * stride**2 / np.where(np.asarray(conv.taps) < stride**2, stride, 1)
    return read


def _passing_us(moved_bytes: Floats, gpu: Gpu, memory_bytes_per_us: float) -> Floats:
    """Time to move activations: through the L2 cache if it holds them all, otherwise through memory."""
    l2 = max(L2_BYTES_PER_CLOCK_PER_SM * gpu.sms * gpu.clock_mhz, memory_bytes_per_us)
    cached = moved_bytes <= (gpu.l2_mib or 0.0) * 2**20
    return np.where(cached, moved_bytes / l2, moved_bytes / memory_bytes_per_us)


def _column(values: ArrayLike) -> Floats:
    return np.asarray(values, float)[..., None]


def _up(values: Floats, multiple: ArrayLike) -> Floats:
    step = np.asarray(multiple)
    padded: Floats = np.ceil(values / step) * step
    return padded


class RooflineCost(LayerCost):
    """A CostModel in microseconds: an estimate of a network's latency on ``gpu``, with all kernels queued.

    Elementwise operations after a convolution run in its kernel: normalisation, activation, and an addition in the
    kernel of the last convolution that leads to it. ``other_us`` is for everything with its own kernels, such as
    pooling.

    Raises:
        TargetError: there is no estimate for this precision.
    """

    how = "estimate"

    def __init__(
        self,
        layers: Sequence[Layer],
        groups: Sequence[Group],
        gpu: Gpu,
        precision: str,
        batch: int,
        *,
        other_us: float = 0.0,
    ) -> None:
        kernels, rate = kernels_for(gpu, precision)
        adding = _adding(layers, groups)

        def layer_us(layer: Layer, in_width: int, out_width: int) -> float:
            shape = (layer.kernel, layer.stride)
            if _is_depthwise(layer):  # its inputs are removed with its outputs
                inputs = out_width * layer.in_channels / layer.out_channels
                conv = Conv(batch * layer.positions, inputs, out_width, *shape, depthwise=True)
            else:
                adds = layer.name in adding
                groups_left = layer.groups * out_width // layer.out_channels if layer.groups > 1 else 1
                conv = Conv(batch * layer.positions, in_width, out_width, *shape, groups_left, adds)
            return float(queued_us(conv, gpu, kernels, rate))

        super().__init__(layers, groups, layer_us, overhead=NETWORK_US + other_us)


def _adding(layers: Sequence[Layer], groups: Sequence[Group]) -> set[str]:
    """Layers whose kernel adds another tensor: all producers of a stream except the first.

    Grouped convolutions belong to the group that they read, so they do not end a branch.
    """
    dense = {layer.name for layer in layers if layer.groups == 1}
    return {name for group in groups for name in [made for made in group.producers if made in dense][1:]}


def _is_depthwise(layer: Layer) -> bool:
    return layer.groups > 1 and layer.groups == layer.in_channels
