import logging

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional
from torchvision.ops import DeformConv2d

from catro_deploy.errors import ModelError, NumericsError
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.models import build_model
from catro_deploy.runtimes import open_runner
from tests.stages import colours

SHAPE = (3, 8, 8)


def randomise_(model: nn.Module) -> nn.Module:
    """Set statistics and weights as after training, so that a missing fold is detected."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            positive, any_sign = [module.running_var], [module.running_mean]
            if module.affine:
                positive, any_sign = [*positive, module.weight], [*any_sign, module.bias]
            for tensor in positive:
                tensor.data.uniform_(0.5, 2, generator=generator)
            for tensor in any_sign:
                tensor.data.normal_(generator=generator)
    return model.eval()


class Norms(nn.Module):
    """BatchNorm before, after and beside convolutions, and on features: some have no convolution to be folded into."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm2d(3)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.BatchNorm2d(8)
        self.third = nn.BatchNorm2d(8, affine=False)
        self.fc = nn.Linear(8, 4)
        self.last = nn.BatchNorm1d(4)
        self.alone = nn.BatchNorm1d(4, eps=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.conv(torch.relu(self.first(x))))
        return self.alone(torch.relu(self.last(self.fc(self.third(torch.relu(x)).mean((2, 3))))))


def operators(file) -> set[str]:
    return {node.op_type for node in onnx.load(file).graph.node}


def assert_same_as_torch(model: nn.Module, file, batch: int, shape=SHAPE) -> None:
    images = torch.randn((batch, *shape), generator=torch.Generator().manual_seed(9))
    with torch.inference_mode(), open_runner("onnxruntime", file, 1) as runner:
        expected, found = model(images).numpy(), runner.infer(images.numpy())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("opset", [18, 23])
def test_every_batch_norm_is_folded_at_any_position(tmp_path, opset):
    model = randomise_(Norms())
    file = tmp_path / "model.onnx"
    export_onnx(model, SHAPE, file, opset=opset, metadata={})
    assert [entry.version for entry in onnx.load(file).opset_import if entry.domain == ""] == [opset]
    assert "BatchNormalization" not in operators(file)
    assert_same_as_torch(model, file, 1)


def test_the_statistics_of_a_batch_itself_are_computed(tmp_path):
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    export_onnx(model, SHAPE, tmp_path / "model.onnx", opset=18, metadata={})
    assert_same_as_torch(model, tmp_path / "model.onnx", 1)


@pytest.mark.slow
def test_a_resnet_becomes_convolutions_alone(tmp_path):
    model = randomise_(build_model("cifar_resnet20", 5))
    file = tmp_path / "model.onnx"
    export_onnx(model, (3, 32, 32), file, opset=18, dynamic_batch=True, metadata={})
    assert operators(file) <= {"Conv", "Relu", "Add", "ReduceMean", "GlobalAveragePool", "Reshape", "Flatten", "Gemm"}
    assert not any(tensor.external_data for tensor in onnx.load(file).graph.initializer)
    for batch in (1, 3):
        assert_same_as_torch(model, file, batch, (3, 32, 32))


@pytest.mark.parametrize(("dynamic", "first"), [(False, 1), (True, "batch")])
def test_input_and_output_are_named_and_shaped(tmp_path, dynamic, first):
    file = tmp_path / "model.onnx"
    export_onnx(colours.ColourNet(3).eval(), SHAPE, file, opset=18, dynamic_batch=dynamic, metadata={})
    graph = onnx.load(file).graph
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert shapes == {"image": [first, *SHAPE], "logits": [first, 3]}


def test_nothing_reaches_the_screen_even_if_the_opset_cannot_be_written(tmp_path, capfd, caplog):
    with caplog.at_level(logging.WARNING):
        export_onnx(randomise_(Norms()), SHAPE, tmp_path / "model.onnx", opset=18, metadata={})
        with pytest.raises(ModelError, match="opset 17") as caught:
            export_onnx(randomise_(Norms()), SHAPE, tmp_path / "old.onnx", opset=17, metadata={})
    assert "export.opset = 18" in caught.value.hint
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) if x.sum() > 0 else -x.flatten(1)


class CountsImages(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) if x.shape[0] == 2 else -x.flatten(1)


class HasNoOperator(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x.flatten(2)).flatten(1)


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            raise KeyError("scale")
        return x.flatten(1)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Branches(), "the values"),
        (CountsImages(), "how many images"),
        (HasNoOperator(), r"\baten\._linalg_svd\b"),
        (Raises(), r"KeyError: 'scale' \(.*test_export\.py:\d+: raise KeyError"),
    ],
)
def test_a_network_that_cannot_be_exported_is_explained(tmp_path, model, reason):
    with pytest.raises(ModelError, match=reason) as caught:
        export_onnx(model.eval(), SHAPE, tmp_path / "model.onnx", opset=18, dynamic_batch=True, metadata={})
    assert len(caught.value.problem) < 400
    assert list(tmp_path.iterdir()) == []


class RandomSlopes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rrelu(x, 0.2, 0.6, training=self.training).mean((2, 3))


@pytest.mark.parametrize("model", [RandomSlopes(), nn.Sequential(nn.RReLU(), nn.Flatten())])
@pytest.mark.parametrize("opset", [18, 23])
def test_rrelu_is_exported_as_leaky_relu(tmp_path, model, opset):
    file = tmp_path / "model.onnx"
    export_onnx(model.eval(), SHAPE, file, opset=opset, metadata={})
    assert onnx.load(file).graph.node[0].op_type == "LeakyRelu"


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize(
    ("output_size", "operators"),
    [
        (1, {"ReduceMax"}),
        ((4, 2), {"MaxPool"}),
        ((3, 8), {"Gather", "MaxPool"}),
        ((11, 5), {"Gather", "MaxPool"}),
    ],
)
def test_max_pooling_to_a_size_that_does_not_divide_is_exported(tmp_path, output_size, operators, opset):
    file, model = tmp_path / "model.onnx", nn.Sequential(nn.AdaptiveMaxPool2d(output_size), nn.Flatten())
    export_onnx(model.eval(), SHAPE, file, opset=opset, dynamic_batch=True, metadata={})
    assert {node.op_type for node in onnx.load(file).graph.node} - {"Reshape", "Flatten"} == operators


class Deformed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.offset, self.conv = nn.Conv2d(3, 18, 3), DeformConv2d(3, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x, self.offset(x)).mean((2, 3))


def test_the_first_opset_that_has_an_operator_is_named_and_works(tmp_path):
    file, model = tmp_path / "model.onnx", Deformed().eval()
    with pytest.raises(ModelError, match=r"DeformConv.*opset 18\b.*\n.*export\.opset = 19\b"):
        export_onnx(model, SHAPE, file, opset=18, metadata={})
    assert list(tmp_path.iterdir()) == []
    export_onnx(model, SHAPE, file, opset=19, metadata={})


def test_nan_weights_are_refused_and_the_old_file_stays(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"what was there before")
    model = colours.ColourNet(3).eval()
    model.fc.bias.data[1] = torch.nan
    with pytest.raises(NumericsError, match=r"model\.onnx.*\bnan\b"):
        export_onnx(model, SHAPE, file, opset=18, metadata={})
    assert file.read_bytes() == b"what was there before"
    assert list(tmp_path.iterdir()) == [file]


class Rounded(nn.Module):
    """PyTorch loses digits to an offset, which the export omits; the export is wrong by ``fault``."""

    def __init__(self, fault: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 8)
        self.fault = fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.conv(x).flatten(1)
        return logits + self.fault if torch.compiler.is_exporting() else (logits + 4096) - 4096


def test_logits_may_differ_by_what_rounding_makes_of_them(tmp_path):
    path, images = tmp_path / "logits.onnx", torch.randn((1, *SHAPE), generator=torch.Generator().manual_seed(0))
    model = Rounded(0.0).eval()
    export_onnx(model, SHAPE, path, opset=18, metadata={})
    with torch.inference_mode(), open_runner("onnxruntime", path, 1) as runner:
        assert np.abs(runner.infer(images.numpy()) - model(images).numpy()).max() > 1e-4
    with pytest.raises(NumericsError, match=r"\b0\.01.*\b0\.00"):
        export_onnx(Rounded(0.01).eval(), SHAPE, path, opset=18, metadata={})


def test_weights_that_no_onnx_file_can_hold_are_refused(tmp_path):
    with torch.device("meta"):
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2**22))
    with pytest.raises(ModelError, match=r"\b3\.0 GiB\b"):
        export_onnx(model.eval(), SHAPE, tmp_path / "large.onnx", opset=18, metadata={})
