"""Operators of PyTorch that its exporter lacks, in ONNX."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["TRANSLATIONS"]


def _leaky_relu(x: Any, noise: Any, lower: float = 1 / 8, upper: float = 1 / 3, *training: object) -> tuple[Any, Any]:  # noqa: ANN401 - values of ONNX Script
    """RReLU in eval mode: a LeakyReLU with the mean of its slopes."""
    from onnxscript import opset18

    return opset18.LeakyRelu(x, alpha=(lower + upper) / 2), noise


def _adaptive_max_pool(x: Any, output_size: Sequence[int]) -> tuple[Any, Any]:  # noqa: ANN401 - as above
    """Max pooling over windows of any sizes: shorter ones repeat their last position, so that all are equal."""
    from onnxscript import opset18

    kernel, found = [], x
    for axis, count in enumerate(output_size, start=2):
        size = x.shape[axis]
        windows = [range(at * size // count, -(-(at + 1) * size // count)) for at in range(count)]
        kernel.append(max(map(len, windows)))
        positions = [min(window[0] + step, window[-1]) for window in windows for step in range(kernel[-1])]
        if positions != list(range(size)):
            places: Any = opset18.Constant(value_ints=positions)
            found = opset18.Gather(found, places, axis=axis)
    pooled, indices = opset18.MaxPool(found, kernel_shape=kernel, strides=kernel)
    if all(count == 1 for count in output_size):  # as the exporter writes it
        axes: Any = opset18.Constant(value_ints=[2, 3])
        pooled = opset18.ReduceMax(x, axes, keepdims=1)
    return pooled, indices


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.rrelu_with_noise_functional.default: _leaky_relu,
    torch.ops.aten.adaptive_max_pool2d.default: _adaptive_max_pool,
}
"""By overload; given to ``torch.onnx.export``."""
