"""Networks in half precision: with its types, the same logits, and float32 where they would overflow."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from torch import nn

from catro_deploy.errors import NumericsError
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.models import build_model
from catro_deploy.precision.fp16 import write_fp16
from catro_deploy.runtimes import open_runner
from tests.graph.residual import lively

SHAPE = (3, 16, 16)


class Loud(nn.Module):
    """Between two convolutions, values are ``factor`` times as large as elsewhere."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.third, self.fc = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 3)
        self.second.weight.data *= factor
        self.third.weight.data /= factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.third(torch.relu(self.second(torch.relu(self.first(x)))))
        return self.fc(torch.relu(x).mean((2, 3)))


def exported(model: nn.Module, folder: Path, shape: tuple[int, int, int] = SHAPE, *, dynamic: bool = False) -> Path:
    export_onnx(model.eval(), shape, folder / "full.onnx", opset=18, dynamic_batch=dynamic, metadata={"network": "x"})
    return folder / "full.onnx"


def logits(file: Path, images: np.ndarray) -> np.ndarray:
    with open_runner("onnxruntime", file, 1) as runner:
        assert dict(runner.metadata)["network"] == "x"
        return np.concatenate([runner.infer(image[None]) for image in images])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["cifar_resnet20", "torchvision:mobilenet_v3_small"])
def test_it_computes_the_same_in_half_the_bytes(tmp_path, name, dynamic):
    shape = (3, 32, 32)
    full = exported(lively(name), tmp_path, shape, dynamic=dynamic)
    assert write_fp16(full, tmp_path / "half.onnx") == ()
    images = np.random.default_rng(1).standard_normal((6, *shape)).astype(np.float32)
    expected, found = logits(full, images), logits(tmp_path / "half.onnx", images)
    assert expected.dtype == found.dtype == np.float32
    assert np.abs(expected - found).max() < 0.03 * np.abs(expected).max()
    assert (tmp_path / "half.onnx").stat().st_size < 0.6 * full.stat().st_size


def test_its_types_say_half(tmp_path):
    write_fp16(exported(build_model("cifar_resnet20", 4), tmp_path, (3, 32, 32)), tmp_path / "half.onnx")
    proto = onnx.load(tmp_path / "half.onnx")
    assert {tensor.data_type for tensor in proto.graph.initializer} <= {TensorProto.FLOAT16, TensorProto.INT64}
    ends = (*proto.graph.input, *proto.graph.output)
    assert {value.type.tensor_type.elem_type for value in ends} == {TensorProto.FLOAT}
    assert [node.op_type for node in proto.graph.node].count("Cast") == 2
    assert {prop.key: prop.value for prop in proto.metadata_props} == {"network": "x", "precision": "fp16"}


@pytest.mark.parametrize(("factor", "overflows"), [(1.0, False), (1e5, True), (1e7, True)])
def test_what_would_overflow_stays_in_float32(tmp_path, factor, overflows):
    torch.manual_seed(0)
    full = exported(Loud(factor), tmp_path)
    kept = write_fp16(full, tmp_path / "half.onnx")
    assert bool(kept) == overflows
    images = np.random.default_rng(1).standard_normal((4, *SHAPE)).astype(np.float32)
    expected, found = logits(full, images), logits(tmp_path / "half.onnx", images)
    assert np.abs(expected - found).max() < 0.03 * np.abs(expected).max()
    in_half = {
        t.name for t in onnx.load(tmp_path / "half.onnx").graph.initializer if t.data_type == TensorProto.FLOAT16
    }
    assert any("first" in name for name in in_half)
    assert any("second" in name for name in in_half) != overflows


def test_weights_that_half_precision_cannot_distinguish_are_reported(tmp_path):
    """Two weights near 4,000, where half precision has only multiples of 2, read the same number."""

    class Cancelling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 1, bias=False)
            self.fc.weight.data = torch.tensor([[4000.5, -4000.0]])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean = x.mean((1, 2, 3))[:, None]
            return self.fc(torch.cat([mean, mean], 1))

    full = exported(Cancelling(), tmp_path)
    (tmp_path / "half.onnx").write_bytes(b"of before")
    with pytest.raises(NumericsError, match=r"half\.onnx") as caught:
        write_fp16(full, tmp_path / "half.onnx")
    assert "fp32" in caught.value.hint
    assert (tmp_path / "half.onnx").read_bytes() == b"of before"
