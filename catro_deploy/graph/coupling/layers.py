"""The convolutions and linear layers of a module, recorded from a run."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from catro_deploy.errors import ModelError
from catro_deploy.graph.cut.kinds import channels, groups_of, is_transposed
from catro_deploy.graph.places import users_line
from catro_deploy.records import Layer

__all__ = ["PRODUCERS", "list_layers", "whole_stride"]

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
PRODUCERS = (*CONVOLUTIONS, nn.Linear)
FUNCTIONS = (functional.conv1d, functional.conv2d, functional.conv3d, functional.linear)


def list_layers(model: nn.Module, input_shape: tuple[int, int, int]) -> list[Layer]:
    """Run ``model`` once and list its convolutions and linear layers in the order of execution.

    A layer that is called several times is listed once, with the positions of all its calls. A functional layer has the
    name of the parameter that is its weight. A layer that reads or returns several tensors, such as an octave
    convolution, has no feature map and is left out.

    Raises:
        ModelError: the model fails on such images, or has no such layer.
    """
    found: dict[str, Layer] = {}

    def record_call(
        name: str,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,  # noqa: ANN401 - a hook
    ) -> None:
        source = args[0] if args else kwargs.get("input")
        if isinstance(output, torch.Tensor) and isinstance(source, torch.Tensor):
            record(name, _layer(name, module, source, output))

    def record(name: str, layer: Layer) -> None:
        before = found[name].positions if name in found else 0
        found[name] = replace(layer, positions=before + layer.positions)

    hooks = [
        module.register_forward_hook(partial(record_call, name), with_kwargs=True)
        for name, module in model.named_modules()
        if isinstance(module, PRODUCERS)
    ]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    try:
        with torch.no_grad(), _Functional(model, record):
            model.eval()(torch.zeros(1, *input_shape, device=device))
    except Exception as error:  # whatever a user's forward may raise
        raise ModelError(
            f"The model fails on an image of shape {input_shape}: {type(error).__name__}: {error}{users_line(error)}",
            "Check [data] size, and that [model] mean has one value for each colour channel.",
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        raise ModelError("The model has no convolution or linear layer.", "There is nothing to prune in it.")
    return list(found.values())


def whole_stride(model: nn.Module, input_shape: tuple[int, int, int]) -> int:
    """How many times smaller than the images, in height and width, the smallest feature map of several positions is.

    Raises:
        ModelError: as ``list_layers``.
    """
    positions = min((layer.positions for layer in list_layers(model, input_shape) if layer.positions > 1), default=1)
    return round(math.sqrt(input_shape[1] * input_shape[2] / positions))


def _layer(name: str, module: nn.Module, image: torch.Tensor, output: torch.Tensor) -> Layer:
    out, inputs = channels(module)
    # A transposed convolution applies the whole kernel to each input, others apply it for each output.
    positions = image[0].numel() // inputs if is_transposed(module) else output[0].numel() // out
    kernel = math.prod(getattr(module, "kernel_size", (1,)))
    stride = int(max(getattr(module, "stride", (1,))))
    return Layer(name, positions, kernel, inputs, out, groups_of(module), stride)


class _Functional(TorchFunctionMode):
    """Records calls of convolutions and linear layers whose weight is a parameter outside any such module."""

    def __init__(self, model: nn.Module, record: Callable[[str, Layer], None]) -> None:
        super().__init__()
        modules = dict(model.named_modules())
        self._names = {
            id(parameter): name
            for name, parameter in model.named_parameters()
            if not isinstance(modules[name.rpartition(".")[0]], PRODUCERS)
        }
        self._record = record

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        given = kwargs or {}
        result = func(*args, **given)
        if func in FUNCTIONS:
            weight = given.get("weight", args[1] if len(args) > 1 else None)
            if id(weight) in self._names:
                name, (out, inputs, *kernel) = self._names[id(weight)], weight.shape
                stride = given.get("stride", args[3] if len(args) > 3 else 1)
                steps = max(stride) if isinstance(stride, list | tuple) else stride
                groups = given.get("groups", args[6] if len(args) > 6 else 1)
                positions = result[0].numel() // out
                self._record(name, Layer(name, positions, math.prod(kernel), inputs * groups, out, groups, steps))
        return result
