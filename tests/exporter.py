"""Torch's exporter reads ONNX's operators anew for each file, which takes half of the time of a small network's."""

import functools

from torch.onnx._internal.exporter._registration import ONNXRegistry

__all__ = ["read_operators_once"]


def read_operators_once() -> None:
    """Keep the operators of each opset from one export to the next, as long as this process lives."""
    ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))
