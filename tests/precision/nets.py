"""Exported networks to quantise: residual, with depthwise convolutions, with a concatenation, with hard-swish."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

from catro_deploy.graph.onnx.export import export_onnx
from tests.graph.residual import lively

SHAPE = (3, 32, 32)


class Concat(nn.Module):
    """Two branches whose channels are concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.left, self.right = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 32, 3, padding=1)
        self.last, self.fc = nn.Conv2d(48, 32, 3, stride=2, padding=1), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.cat([torch.relu(self.left(x)), torch.relu(self.right(x))], 1)
        return self.fc(torch.relu(self.last(x)).mean((2, 3)))


def concat() -> nn.Module:
    torch.manual_seed(0)
    return Concat()


def hard_swish() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.Hardswish(), nn.Conv2d(16, 8, 3), nn.ReLU()
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


MADE = {"concat": concat, "hard_swish": hard_swish}


@cache
def network(name: str, *, dynamic: bool = False) -> Any:
    """The network ``name``, exported as an onnx.ModelProto that must not be changed."""
    model = MADE[name]() if name in MADE else lively(name)
    with TemporaryDirectory() as folder:
        file = Path(folder, "x.onnx")
        export_onnx(model.eval(), SHAPE, file, opset=18, dynamic_batch=dynamic, metadata={"network": "x"})
        return onnx.load(file)


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, *SHAPE)).astype(np.float32)


def run(proto: Any, inputs: np.ndarray) -> np.ndarray:
    """Logits, image by image, without any fusion."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return np.concatenate([session.run(None, {"image": image[None]})[0] for image in inputs])
