"""Caching for PyTorch's ONNX exporter, which spends half of a small network's export reading ONNX's operators again."""

import functools

from torch.onnx._internal.exporter._registration import ONNXRegistry

__all__ = ["read_operators_once"]


def read_operators_once() -> None:
    """Cache the operators of each opset across exports for the lifetime of this process."""
    ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))
