"""Caching for PyTorch's ONNX exporter, which spends most of a small network's export reading operators again."""

import functools
import typing

import torch._ops
from torch._export import utils
from torch.onnx._internal.exporter._registration import ONNXRegistry

__all__ = ["read_operators_once"]


def read_operators_once() -> None:
    """Cache ONNX's operators of each opset, and PyTorch's, across exports for the lifetime of this process.

    Operators of a library that is imported later are found when a network first calls them.
    """
    ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))
    utils._materialize_cpp_cia_ops = functools.cache(utils._materialize_cpp_cia_ops)
    # PyTorch evaluates an annotation anew for each of thousands of operators; of the two, typing's Callable is cached.
    torch._ops.Callable = typing.Callable
