"""The ONNX operators of classifiers, implemented in PyTorch.

Each function takes the node's inputs, None for a missing one, and its attributes; it returns the node's output. Inputs
that are indices or sizes are lists of integers. Semantics follow ONNX's Operators.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["OPERATORS", "compute"]

Inputs = Sequence[torch.Tensor | list[int] | None]
Attributes = Mapping[str, Any]
Outputs = torch.Tensor | tuple[torch.Tensor, ...]


def compute(operator: str, inputs: Inputs, attributes: Attributes) -> Outputs:
    """The output of a node of ``operator``, which is one of ``OPERATORS``."""
    return OPERATORS[operator](inputs, attributes)


def _tensor(inputs: Inputs, place: int = 0) -> torch.Tensor:
    value = inputs[place]
    assert isinstance(value, torch.Tensor)
    return value


def _optional(inputs: Inputs, place: int) -> torch.Tensor | None:
    return _tensor(inputs, place) if len(inputs) > place and inputs[place] is not None else None


def _integers(inputs: Inputs, place: int, attributes: Attributes, name: str) -> list[int] | None:
    """A value that newer operator sets have as an input and older ones as an attribute."""
    value = inputs[place] if len(inputs) > place else None
    return value if isinstance(value, list) else attributes.get(name)


def _padded(x: torch.Tensor, attributes: Attributes, fill: float) -> tuple[torch.Tensor, list[int]]:
    """``x``, padded if a kernel cannot do so, and the padding that the kernel must add on both sides of each axis."""
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise ValueError("auto_pad")
    axes = x.ndim - 2
    pads = list(attributes.get("pads", [0] * 2 * axes))
    before, after = pads[:axes], pads[axes:]
    if before == after:
        return x, before
    sides = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    return F.pad(x, sides, value=fill), [0] * axes


def _convolution(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    x, padding = _padded(_tensor(inputs), attributes, 0.0)
    axes, bias = x.ndim - 2, _optional(inputs, 2)
    strides, dilations = (list(attributes.get(name, [1] * axes)) for name in ("strides", "dilations"))
    group = attributes.get("group", 1)
    return torch.convolution(x, _tensor(inputs, 1), bias, strides, padding, dilations, False, [0] * axes, group)


def _gemm(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    a, b = _tensor(inputs), _tensor(inputs, 1)
    a, b = (a.T if attributes.get("transA") else a), (b.T if attributes.get("transB") else b)
    alpha, beta, bias = float(attributes.get("alpha", 1)), float(attributes.get("beta", 1)), _optional(inputs, 2)
    product = alpha * (a @ b)
    return product if bias is None else product + beta * bias


def _max_pool(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    x, padding = _padded(_tensor(inputs), attributes, -torch.inf)
    kernel = list(attributes["kernel_shape"])
    strides, dilations = (list(attributes.get(name, [1] * len(kernel))) for name in ("strides", "dilations"))
    return F.max_pool2d(x, kernel, strides, padding, dilations, bool(attributes.get("ceil_mode")))


def _average_pool(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    x = _tensor(inputs)
    counts_padding = bool(attributes.get("count_include_pad"))
    padded, padding = _padded(x, attributes, 0.0)
    if padded is not x and not counts_padding:
        raise ValueError("pads that differ from side to side")
    kernel = list(attributes["kernel_shape"])
    strides = list(attributes.get("strides", [1] * len(kernel)))
    return F.avg_pool2d(padded, kernel, strides, padding, bool(attributes.get("ceil_mode")), counts_padding)


def _reduced(function: Callable[..., torch.Tensor]) -> Callable[[Inputs, Attributes], torch.Tensor]:
    def reduce(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
        x = _tensor(inputs)
        axes = _integers(inputs, 1, attributes, "axes") or list(range(x.ndim))
        return function(x, axes, bool(attributes.get("keepdims", 1)))

    return reduce


def _reshape(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    """Reshape, with the batch size of the file replaced by that of the current batch."""
    x, shape = _tensor(inputs), _integers(inputs, 1, attributes, "shape") or []
    sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    return x.reshape([len(x), *sizes[1:]] if sizes[0] in (1, -1) else sizes)


def _flatten(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    x = _tensor(inputs)
    return x.reshape(math.prod(x.shape[: attributes.get("axis", 1)]), -1)


def _slice(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    x = _tensor(inputs)
    starts, ends = _integers(inputs, 1, attributes, "starts") or [], _integers(inputs, 2, attributes, "ends") or []
    axes = _integers(inputs, 3, attributes, "axes") or list(range(len(starts)))
    steps = _integers(inputs, 4, attributes, "steps") or [1] * len(starts)
    parts = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        parts[axis] = slice(start, end, step)
    return x[tuple(parts)]


def _split(inputs: Inputs, attributes: Attributes) -> tuple[torch.Tensor, ...]:
    x, axis = _tensor(inputs), attributes.get("axis", 0)
    if sizes := _integers(inputs, 1, attributes, "split"):
        return torch.split(x, sizes, axis)
    return torch.chunk(x, attributes["num_outputs"], axis)


def _unsqueeze(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    x, axes = _tensor(inputs), _integers(inputs, 1, attributes, "axes") or []
    for axis in sorted(axis % (x.ndim + len(axes)) for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _squeeze(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    x, axes = _tensor(inputs), _integers(inputs, 1, attributes, "axes")
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _pad(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    if attributes.get("mode", "constant") != "constant" or len(inputs) > 3:
        raise ValueError("a mode other than constant, or axes")
    x, pads = _tensor(inputs), _integers(inputs, 1, attributes, "pads") or []
    half, fill = len(pads) // 2, _optional(inputs, 2)
    sides = [side for pair in zip(reversed(pads[:half]), reversed(pads[half:]), strict=True) for side in pair]
    return F.pad(x, sides, value=0.0 if fill is None else float(fill))


def _clip(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    return torch.clamp(_tensor(inputs), _optional(inputs, 1), _optional(inputs, 2))


def _hard_sigmoid(x: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
    return torch.clamp(alpha * x + beta, 0, 1)


def _batch_norm(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    x, weight, bias, mean, variance = (_tensor(inputs, place) for place in range(5))
    return F.batch_norm(x, mean, variance, weight, bias, eps=attributes.get("epsilon", 1e-5))


def _layer_norm(inputs: Inputs, attributes: Attributes) -> torch.Tensor:
    x, weight = _tensor(inputs), _tensor(inputs, 1)
    bias = _optional(inputs, 2)
    return F.layer_norm(x, x.shape[attributes.get("axis", -1) :], weight, bias, attributes.get("epsilon", 1e-5))


def _on_each(function: Callable[..., torch.Tensor]) -> Callable[[Inputs, Attributes], torch.Tensor]:
    return lambda inputs, attributes: function(*inputs)


OPERATORS: Mapping[str, Callable[[Inputs, Attributes], Outputs]] = {
    "Add": _on_each(torch.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": lambda inputs, attributes: torch.cat([_tensor([one]) for one in inputs], attributes["axis"]),
    "Conv": _convolution,
    "Div": _on_each(torch.div),
    "Erf": _on_each(torch.erf),
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda inputs, attributes: _tensor(inputs).mean((2, 3), keepdim=True),
    "HardSigmoid": lambda inputs, attributes: _hard_sigmoid(
        _tensor(inputs), attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
    ),
    "HardSwish": _on_each(lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5)),
    "Identity": _on_each(lambda x: x),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda inputs, attributes: F.leaky_relu(_tensor(inputs), attributes.get("alpha", 0.01)),
    "MatMul": _on_each(torch.matmul),
    "MaxPool": _max_pool,
    "Mul": _on_each(torch.mul),
    "PRelu": _on_each(lambda x, slope: torch.where(x < 0, slope * x, x)),
    "Pad": _pad,
    "ReduceMean": _reduced(torch.mean),
    "ReduceSum": _reduced(torch.sum),
    "Relu": _on_each(torch.relu),
    "Reshape": _reshape,
    "Sigmoid": _on_each(torch.sigmoid),
    "Slice": _slice,
    "Softmax": lambda inputs, attributes: torch.softmax(_tensor(inputs), attributes.get("axis", -1)),
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _on_each(torch.sub),
    "Transpose": lambda inputs, attributes: _tensor(inputs).permute(attributes["perm"]),
    "Unsqueeze": _unsqueeze,
}
