"""What is exported to be timed, and which networks share a profile."""

import json
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional

from catro_deploy.errors import ModelError
from catro_deploy.graph.trace import trace
from catro_deploy.profiling import subject as subjects
from catro_deploy.profiling.subject import Subject, identity, opened
from catro_deploy.runtimes import open_runner
from tests.graph.networks import GatedConcat, randomised
from tests.profiling.quick import PROTOCOL, SHAPE, USE, tiny_network
from tests.tiny import TinyNet


class Smooth(TinyNet):
    """The same modules and sizes as its parent's, another activation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.silu(self.bn1(self.conv1(x)))
        x = functional.silu(self.bn2(self.conv2(x)))
        return self.fc(functional.silu(x + self.bn3(self.conv3(x))).mean((2, 3)))


class Dropping(TinyNet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(super().forward(x), 0.5, self.training)


class Unused(TinyNet):
    """It computes logits that it does not return."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.spare = nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.spare(x)
        return super().forward(x)


class Shuffled(TinyNet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.transpose(2, 3))


class Switching(TinyNet):
    """What it computes depends on the image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if x.sum() > 0 else -x)


class Counting(TinyNet):
    """How many rows are left depends on the image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x[:, :, x[0, 0, :, 0] > -1e9])


def key(model: nn.Module, shape: tuple[int, int, int] = SHAPE) -> str:
    return identity(model, trace(model, shape))


def one_export(model: nn.Module) -> dict[str, Any]:
    """The skeleton of ``model`` in full width: its operators, and the shapes of its constants."""
    with opened(model, trace(model, SHAPE), USE, 18) as subject:
        graph = subject.skeleton.resized({}).graph
        return {"operators": subject.skeleton.operators} | {t.name: tuple(t.dims) for t in graph.initializer}


def test_other_weights_are_the_same_network():
    assert key(tiny_network(0)) == key(tiny_network(1))


@pytest.mark.parametrize(
    "other",
    [
        lambda: Smooth(3),
        lambda: TinyNet(4),
        lambda: nn.Sequential(TinyNet(3)),
        lambda: nn.Sequential(TinyNet(3), nn.Softmax(1)),
    ],
)
def test_another_activation_size_or_name_is_another_network(other):
    assert key(other().eval()) != key(tiny_network())


def test_another_image_size_is_another_network():
    assert key(tiny_network(), (3, 32, 32)) != key(tiny_network())


def test_the_export_does_not_depend_on_the_weights():
    """Zeros would be left out, and equal weights made one."""
    blank = tiny_network()
    for parameter in blank.parameters():
        nn.init.constant_(parameter, 0)
    assert one_export(blank) == one_export(tiny_network())


def test_the_model_is_left_as_it_was():
    model = tiny_network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    one_export(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_dropout_is_not_there_in_evaluation():
    model = Dropping(3).train()
    assert one_export(model)["operators"] == one_export(tiny_network())["operators"]


def test_files_of_other_widths():
    model = tiny_network()
    with opened(model, trace(model, SHAPE), USE, 18) as subject:
        file = subject.write({"conv1": 5, "conv2": 3}, "narrow")
        onnx.checker.check_model(file, full_check=True)
        shapes = {
            tensor.name: tuple(tensor.dims) for tensor in onnx.load(file, load_external_data=False).graph.initializer
        }
        assert shapes["conv2.weight"] == (3, 5, 3, 3)
        with open_runner("onnxruntime", file, 1) as runner:
            assert np.isfinite(runner.infer(np.ones((1, *SHAPE), np.float32))).all()
        folder = subject.folder
    assert not folder.exists()


def test_a_group_of_several_layers_keeps_a_share_of_each():
    """4 and 6 channels are one group of 10, of which the first 3 would leave nothing of the second layer."""
    model = randomised(GatedConcat())
    with opened(model, trace(model, (3, 8, 8)), USE, 18) as subject:
        (wide,) = [group for group in subject.groups if group.width == 10]
        widths = {group.name: group.width for group in subject.groups}
        for width in range(3, 11):
            file = subject.write(widths | {wide.name: width}, "part")
            tensors = onnx.load(file, load_external_data=False).graph.initializer
            shapes = {tensor.name: tuple(tensor.dims) for tensor in tensors}
            assert shapes["left.weight"][0] + shapes["right.weight"][0] == width
            at = subject.cost.layer_widths(widths | {wide.name: width})
            assert abs(shapes["left.weight"][0] - at["left"][1]) <= 0.5  # the cells are told the same widths


def job(subject: Subject) -> dict[str, Any]:
    return subject.job([{"name": "a", "file": "a.onnx", "whole": True}], PROTOCOL)


def test_a_job_is_fit_for_a_pipe():
    model = tiny_network()
    with opened(model, trace(model, SHAPE), USE, 18) as subject:
        made = job(subject)
    assert json.loads(json.dumps(made)) == made
    assert made["protocol"] == PROTOCOL.model_dump()


@pytest.mark.parametrize(("networks", "together"), [(3.5, 3), (0.5, 1), (100, PROTOCOL.together)])
def test_only_so_many_networks_are_loaded_as_fit_into_memory(monkeypatch, networks, together):
    model = tiny_network()
    weights = sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    monkeypatch.setattr(subjects, "MOST_LOADED_BYTES", int(networks * 4 * weights))
    with opened(model, trace(model, SHAPE), USE, 18) as subject:
        assert job(subject)["protocol"]["together"] == together


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (Shuffled, "holds a Transpose behind conv1, whose shapes at other widths are not known"),
        (Switching, "cannot be exported"),
        (Counting, "cannot be exported|shapes at other widths are not known"),
        (Unused, "lacks spare, of which no logit depends"),
    ],
)
def test_networks_that_cannot_be_timed_in_other_widths_are_explained(network, reason):
    torch.manual_seed(0)
    model = network(3).eval()
    with pytest.raises(ModelError, match=reason) as caught, opened(model, trace(model, SHAPE), USE, 18):
        pass
    assert caught.value.hint
