"""Interleaved timing of files in one process."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.precision import race as racing
from benchmarks.precision.race import race, ratio
from catro_deploy.graph.onnx.export import export_onnx


def test_a_ratio_is_the_median_over_the_passes_with_its_spread():
    slow, fast = np.array([20.0, 30.0, 40.0]), np.array([10.0, 10.0, 10.0])
    assert ratio(slow, fast) == pytest.approx([3.0, 2.2, 3.8])


def test_a_network_with_far_more_work_is_slower(tmp_path, monkeypatch):
    monkeypatch.setattr(racing, "PASSES", 3)
    torch.manual_seed(0)
    for name, width in (("small", 4), ("large", 256)):
        layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3)).eval()
        export_onnx(network, (3, 16, 16), tmp_path / f"{name}.onnx", opset=18, metadata={})
    times = race({name: ("onnxruntime", tmp_path / f"{name}.onnx") for name in ("small", "large")})
    assert {name: len(of) for name, of in times.items()} == {"small": 3, "large": 3}
    assert ratio(times["large"], times["small"])[0] > 5  # 4,000 times the multiply-accumulates
