"""What is exported for timing, and which networks share a profile."""

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from catro_deploy.agent.events import NodeTimes, Sample
from catro_deploy.agent.jobs import Job, ProfileJob, Variant
from catro_deploy.agent.wire import read, to_json
from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.onnx.interface import Interface
from catro_deploy.graph.onnx.onnx_layers import layer_of
from catro_deploy.latency.profile import subject as subjects
from catro_deploy.latency.profile.samples import timed
from catro_deploy.latency.profile.subject import Subject, identity, opened
from catro_deploy.runtimes import open_runner
from tests.graph.cut_networks import CASES
from tests.latency.profile.quick import PROTOCOL, SHAPE, USE, tiny_network
from tests.tiny import TinyNet


class Smooth(TinyNet):
    """The same modules and sizes as its parent, with another activation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.silu(self.bn1(self.conv1(x)))
        x = functional.silu(self.bn2(self.conv2(x)))
        return self.fc(functional.silu(x + self.bn3(self.conv3(x))).mean((2, 3)))


class Dropping(TinyNet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(super().forward(x), 0.5, self.training)


class Unused(TinyNet):
    """Computes a convolution whose output it does not use."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.spare = nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.spare(x)
        return super().forward(x)


class Summing(TinyNet):
    """Applies to each channel an operator for which no rule is known."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(x))).cumsum(3)
        x = functional.relu(self.bn2(self.conv2(x)))
        return self.fc(functional.relu(x + self.bn3(self.conv3(x))).mean((2, 3)))


class Parametrised(TinyNet):
    """The weights of its convolutions are computed from other parameters."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.conv2, self.conv3 = (parametrizations.weight_norm(conv) for conv in (self.conv2, self.conv3))


class Tied(TinyNet):
    """Two of its convolutions share one weight."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.conv4 = nn.Conv2d(16, 16, 3, 1, 1)
        self.conv4.weight = self.conv3.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x))))))
        return self.fc(functional.relu(self.conv4(functional.relu(self.bn3(self.conv3(x))))).mean((2, 3)))


class Switching(TinyNet):
    """What it computes depends on the values of the image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if x.sum() > 0 else -x)


class Counting(TinyNet):
    """The number of rows that are left depends on the values of the image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x[:, :, x[0, 0, :, 0] > -1e9])


def opening(
    model: nn.Module, shape: tuple[int, int, int] = SHAPE, notes: list[str] | None = None
) -> AbstractContextManager[Subject]:
    return opened(model, trace(model, shape), USE, 18, [].append if notes is None else notes.append)


def shapes_of(file: Path) -> dict[str, tuple[int, ...]]:
    tensors = onnx.load(file, load_external_data=False).graph.initializer
    return {tensor.name: tuple(tensor.dims) for tensor in tensors}


def key(model: nn.Module, shape: tuple[int, int, int] = SHAPE) -> str:
    return identity(model, trace(model, shape))


def one_export(model: nn.Module) -> dict[str, Any]:
    """The skeleton of ``model`` at full width: its operators, and the shapes of its constants."""
    with opening(model) as subject:
        return {"operators": subject.writer.operators} | shapes_of(subject.folder / "reference.onnx")


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
    """An export would leave out zeros and merge equal weights."""
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
    notes: list[str] = []
    with opening(model, notes=notes) as subject:
        file = subject.write({"conv1": 5, "conv2": 3}, "narrow")
        onnx.checker.check_model(file, full_check=True)
        assert shapes_of(file)["conv2.weight"] == (3, 5, 3, 3)
        with open_runner("onnxruntime", file, 1) as runner:
            assert np.isfinite(runner.infer(np.ones((1, *SHAPE), np.float32))).all()
        folder = subject.folder
    assert not folder.exists()
    assert not notes


def test_what_no_rule_is_known_for_is_exported_each_time():
    torch.manual_seed(0)
    model = Summing(3).eval()
    notes: list[str] = []
    with opening(model, notes=notes) as subject:
        wide, narrow = (subject.write({"conv1": 5, "conv2": width}, f"{width}") for width in (7, 3))
        assert (shapes_of(wide)["conv2.weight"], shapes_of(narrow)["conv2.weight"]) == ((7, 5, 3, 3), (3, 5, 3, 3))
        assert narrow.stat().st_size < 10_000  # its weights are in the file that all networks share
        nodes = onnx.load(narrow, load_external_data=False).graph.node
        assert {layer_of(node.name) for node in nodes} == {layer.name for layer in subject.network.layers}
        reference = onnx.load(subject.folder / "reference.onnx", load_external_data=False).graph.node
        assert [node.name for node in nodes] == [node.name for node in reference]
        with open_runner("onnxruntime", narrow, 1) as runner:
            assert np.isfinite(runner.infer(np.ones((1, *SHAPE), np.float32))).all()
    assert len(notes) == 1
    assert "operator CumSum after conv1" in notes[0]
    assert "takes seconds per network" in notes[0]


def test_how_many_rows_there_are_need_not_be_known():
    torch.manual_seed(0)
    with opening(Counting(3).eval()) as subject:
        file = subject.write({"conv1": 5, "conv2": 3}, "narrow")
        assert shapes_of(file)["conv2.weight"] == (3, 5, 3, 3)
        with open_runner("onnxruntime", file, 1) as runner:
            assert np.isfinite(runner.infer(np.ones((1, *SHAPE), np.float32))).all()


def test_weights_that_are_computed_are_those_of_their_layers():
    torch.manual_seed(0)
    plain = one_export(TinyNet(3).eval())
    assert one_export(Parametrised(3).eval()) == plain


def test_modules_that_share_a_weight_are_layers_of_their_own():
    torch.manual_seed(0)
    model = Tied(3).eval()
    with opening(model) as subject:
        assert {"conv3", "conv4"} <= set(subject.writer.operators)
        shapes = shapes_of(subject.write({"conv1": 5, "conv2": 3}, "narrow"))
    assert shapes["conv3.weight"] == shapes["conv4.weight"] == (3, 3, 3, 3)
    assert model.conv4.weight is model.conv3.weight


def test_each_group_keeps_as_many_as_requested():
    """After a concatenation of 4 and 6 channels, one layer computes the factors of all 10."""
    model = CASES["GatedBranches"].network()
    with opening(model, (3, 8, 8)) as subject:
        for left, right in ((1, 6), (3, 1), (4, 5)):
            widths = {"left": left, "right": right, "squeeze": 2}
            shapes = shapes_of(subject.write(widths, "part"))
            assert shapes["excite.weight"] == (left + right, 2, 1, 1)
            assert subject.cost.layer_widths(widths)["excite"] == (2, left + right)  # the cells get the same widths


def job(subject: Subject) -> ProfileJob:
    return subject.job([Variant("a", "a.onnx", whole=True)], PROTOCOL)


def test_a_job_is_fit_for_a_pipe():
    model = tiny_network()
    with opening(model) as subject:
        made = job(subject)
    assert read(Job, json.loads(json.dumps(to_json(made)))) == made
    protocol = PROTOCOL.model_dump()
    assert asdict(made.protocol) == {one.name: protocol[one.name] for one in fields(made.protocol)}


@pytest.mark.parametrize(("networks", "together"), [(3.5, 3), (0.5, 1), (100, PROTOCOL.together)])
def test_only_so_many_networks_are_loaded_as_fit_into_memory(monkeypatch, networks, together):
    model = tiny_network()
    weights = sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    monkeypatch.setattr(subjects, "MOST_LOADED_BYTES", int(networks * 4 * weights))
    with opening(model) as subject:
        assert job(subject).protocol.together == together


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (Switching, "the values"),
        (Unused, r"\bspare\b"),
    ],
)
def test_networks_that_cannot_be_timed_in_other_widths_are_explained(network, reason):
    torch.manual_seed(0)
    model = network(3).eval()
    with pytest.raises(ModelError, match=reason) as caught, opening(model):
        pass
    assert caught.value.hint


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_preprocessing_is_timed_with_the_first_layer(precision):
    model = tiny_network()
    network = trace(model, SHAPE)
    raw = Interface("uint8", "nhwc", "softmax", (0.5,) * 3, (0.25,) * 3)
    channels, height, width = SHAPE
    with opened(model, network, replace(USE, precision=precision, interface=raw), 18, print) as subject:
        for file in (subject.folder / subjects.REFERENCE, subject.write(subject.full, "whole")):
            with open_runner("onnxruntime", file, 1, profiling=True) as runner:
                assert runner.input_type == np.uint8
                assert runner.image_shape == (height, width, channels)
                runner.infer(np.zeros((1, height, width, channels), np.uint8))
                names, us = runner.node_times()
            assert {"preprocess/Cast", "preprocess/BatchNormalization", "postprocess/Softmax"} <= set(names)
            nodes = tuple(NodeTimes(name, (float(one),)) for name, one in zip(names, us[0], strict=True))
            sample = Sample("a", 1.0, nodes, None, (100.0,))
            layers = [layer.name for layer in network.layers]
            found = timed(sample, 100.0, layers).layers
            assert set(found) == set(layers)
            assert sum(count for _, count in found.values()) == len(names)
            own = sum(layer_of(name) == layers[0] for name in names)
            assert found[layers[0]][1] >= own + 3
