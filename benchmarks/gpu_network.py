"""Convolutions with their BatchNorm folded into weights and bias: whole networks, and chains of one layer.

Weights are random: how long a network takes does not depend on what it has learnt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as functional
from gpu_device import Device, Run
from gpu_resnet import HEAD, STEM, ResNet, Step
from torch import Tensor

__all__ = ["Case", "FoldedResNet", "Fusion", "chain"]


@dataclass(frozen=True)
class Case:
    """A layer at one pair of widths and for so many images."""

    step: Step
    inputs: int
    outputs: int
    batch: int

    @property
    def key(self) -> tuple[object, ...]:
        """What decides which kernel runs; layers of other names may share it."""
        return (*self.step.kind, self.inputs, self.outputs, self.batch)


class Fusion:
    """Which convolutions take bias, addition and ReLU into their kernel: torch.cudnn_convolution_relu and _add_relu.

    A kind of layer does so as ``by_kind`` says, by kind and batch; others as ``otherwise`` says. Where cuDNN has no
    such kernel at some widths the layer runs plain.
    """

    def __init__(self) -> None:
        self.otherwise = False
        self.by_kind: dict[tuple[object, ...], bool] = {}
        self.refused: set[tuple[object, ...]] = set()

    def wanted(self, case: Case) -> bool:
        """Whether the layer shall run as one kernel."""
        able = "Relu" in case.step.operators and case.key not in self.refused
        return able and self.by_kind.get((*case.step.kind, case.batch), self.otherwise)

    def kernels(self, case: Case) -> int:
        """Kernels that the layer takes."""
        operators = case.step.operators
        if case.step.name == HEAD:
            return 2
        if self.wanted(case):
            return 1 + ("MaxPool" in operators)
        return len(operators) + ("Relu" in operators)


def run_layer(case: Case, x: Tensor, weight: Tensor, bias: Tensor, beside: Tensor | None, fusion: Fusion) -> Tensor:
    """Run one layer on ``x`` (batch, channels, height, width); ``beside`` is added before the ReLU."""
    step = case.step
    if step.name == HEAD:
        return functional.linear(x.mean((2, 3)), weight, bias)
    y = _fused(case, x, weight, bias, beside, fusion)
    if y is None:
        # What a block's convolution is added to needs no bias: that of the other convolution holds both.
        y = functional.conv2d(x, weight, bias if "Relu" in step.operators else None, step.stride, step.side // 2)
        if beside is not None:
            y.add_(beside)
        if "Relu" in step.operators:
            y.relu_()
    return functional.max_pool2d(y, 3, 2, 1) if "MaxPool" in step.operators else y


def _fused(case: Case, x: Tensor, weight: Tensor, bias: Tensor, beside: Tensor | None, fusion: Fusion) -> Tensor | None:
    """The convolution as one kernel, if it is to run so and cuDNN can."""
    if not fusion.wanted(case):
        return None
    how = [[case.step.stride] * 2, [case.step.side // 2] * 2, [1, 1], 1]
    try:
        if beside is None:
            y: Tensor = torch.cudnn_convolution_relu(x, weight, bias, *how)
        else:
            y = torch.cudnn_convolution_add_relu(x, weight, beside, 1.0, bias, *how)
    except RuntimeError:
        fusion.refused.add(case.key)
        return None
    return y


def _random(device: Device, *shape: int) -> Tensor:
    values = torch.randn(shape, device=device.torch_device, dtype=torch.float32).to(device.dtype)
    return values.to(memory_format=torch.channels_last) if len(shape) == 4 else values


def _parameters(case: Case, device: Device) -> tuple[Tensor, Tensor]:
    """Weights that keep activations near 1 (He et al., 2015), smaller where they add to a stream; and a bias."""
    step = case.step
    scale = (0.1 if "Add" in step.operators else 1.0) * (2 / (case.inputs * step.side**2)) ** 0.5
    shape = (case.outputs, case.inputs) + (() if step.name == HEAD else (step.side, step.side))
    return _random(device, *shape) * scale, _random(device, case.outputs) * 0.1


def chain(case: Case, repeats: int, device: Device, fusion: Fusion) -> Run:
    """The layer ``repeats`` times in a row, each time with other weights, as the layers of a network have their own."""
    x = _random(device, case.batch, case.inputs, case.step.size, case.step.size)
    size = case.step.out_size
    beside = _random(device, case.batch, case.outputs, size, size) if "Add" in case.step.operators else None
    parameters = [_parameters(case, device) for _ in range(repeats)]

    def work() -> None:
        for weight, bias in parameters:
            run_layer(case, x, weight, bias, beside, fusion)

    return device.prepare(work)


class FoldedResNet:
    """A ResNet of certain widths for ``batch`` images; blocks whose inner groups have width 0 are not there."""

    def __init__(
        self, resnet: ResNet, widths: Mapping[str, int], batch: int, device: Device, fusion: Fusion, seed: int = 0
    ) -> None:
        torch.manual_seed(seed)
        self.resnet, self.fusion = resnet, fusion
        self.images = _random(device, batch, 3, resnet.image, resnet.image)
        pairs = {step.name: resnet.channels(step, widths) for step in resnet.steps}
        self.cases = {name: Case(resnet.by_name[name], *pair, batch) for name, pair in pairs.items() if all(pair)}
        for block in (branch.name for branch in resnet.branches if f"{branch.name}.conv3" not in self.cases):
            if projection := self.cases.get(f"{block}.downsample.0"):
                self.cases[projection.step.name] = replace(projection, step=projection.step.rectified)
        self.parameters = {name: _parameters(case, device) for name, case in self.cases.items()}

    def __call__(self) -> Tensor:
        """Logits of its images."""
        return self._forward(self.images, self.parameters, self.fusion)

    def in_float32(self) -> Tensor:
        """The same computed by plain kernels in float32."""
        parameters = {name: (weight.float(), bias.float()) for name, (weight, bias) in self.parameters.items()}
        return self._forward(self.images.float(), parameters, Fusion())

    def _forward(self, images: Tensor, parameters: Mapping[str, tuple[Tensor, Tensor]], fusion: Fusion) -> Tensor:
        def run(name: str, x: Tensor, beside: Tensor | None = None) -> Tensor:
            return run_layer(self.cases[name], x, *parameters[name], beside, fusion)

        x = run(STEM, images)
        for block in (branch.name for branch in self.resnet.branches):
            beside = run(f"{block}.downsample.0", x) if f"{block}.downsample.0" in self.cases else x
            if f"{block}.conv3" in self.cases:
                beside = run(f"{block}.conv3", run(f"{block}.conv2", run(f"{block}.conv1", x)), beside)
            x = beside
        return run(HEAD, x)
