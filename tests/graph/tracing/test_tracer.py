"""Only modules that cannot be traced are called as a whole; errors say where tracing failed and what to do."""

import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.tracing.symbolic import evaluation_graph, symbolic
from tests.graph.networks import Residual, randomised
from tests.graph.opaque import Between, ByCount


class ByShape(nn.Module):
    """Needs a size as a Python number, which a trace does not know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(x, [0] * (4 - len(x.shape)))


class Unpacked(nn.Module):
    """Iterates over a tensor in Python."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([image * 2 for image in x])


class Same(nn.Conv2d):
    """A layer that pads by Python arithmetic on its input's size, as timm's do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        missing = max(0, 3 - x.shape[-1] % 2 - 1)
        return super().forward(nn.functional.pad(x, [missing - 1, 0, missing - 1, 0]))


class ByMode(nn.Module):
    """Takes another branch in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.training else x


class ByChance(nn.Module):
    """Random numbers that do not depend on the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + float(torch.rand(())) * self.training)


def images() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("inside", [ByCount, ByShape, Unpacked, ByChance])
def test_only_the_innermost_module_is_called_whole(inside):
    model = randomised(Between(inside()))
    traced = symbolic(model)
    assert set(traced.opaque) == {"block.1"}
    called = {str(node.target) for node in traced.module.graph.find_nodes(op="call_module")}
    assert called == {"stem", "block.0", "block.1", "last", "fc"}
    torch.testing.assert_close(traced.module(images()), model(images()))


def test_several_modules_are_called_whole_if_need_be():
    model = randomised(Between(nn.Sequential(ByShape(), nn.Conv2d(6, 6, 1), Unpacked())))
    assert set(evaluation_graph(model).opaque) == {"block.1.0", "block.1.2"}


def test_a_layer_of_a_class_of_its_own_is_a_layer():
    model = randomised(Between(Same(6, 6, 3)))
    traced = evaluation_graph(model)
    assert traced.opaque == {}
    assert traced.why_hidden("block.1") == ""
    assert torch.equal(traced.module(images()), model(images()))


def test_a_module_that_follows_the_mode_still_does():
    model = randomised(Between(ByMode()))
    traced = symbolic(model)
    assert "training" in traced.opaque["block.1"]
    assert evaluation_graph(model).opaque == {}
    for mode in (True, False):
        torch.testing.assert_close(traced.module.train(mode)(images()), model.train(mode)(images()))


def test_ignored_modules_are_not_looked_into():
    traced = evaluation_graph(randomised(Between(nn.Conv2d(6, 6, 1))), ["block"])
    called = {str(node.target) for node in traced.module.graph.find_nodes(op="call_module")}
    assert called == {"stem", "block", "last", "fc"}
    assert traced.why_hidden("block.0") == "block is not traced: it is to be ignored"


def test_why_a_layer_is_hidden():
    traced = evaluation_graph(randomised(Between(ByCount())))
    reason = traced.why_hidden("block.1.conv")
    assert reason.startswith("block.1 is not traced: TraceError: ")
    assert "opaque.py:" in reason
    assert "return x if x.shape[0] < 60 else -x" in reason


class Root(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 0:
            x = -x
        return super().forward(x)


def test_where_the_model_itself_fails():
    with pytest.raises(ModelError) as caught:
        evaluation_graph(Root())
    assert "The forward of Root cannot be traced; it fails in the model itself: TraceError" in caught.value.problem
    assert "test_tracer.py:" in caught.value.problem
    assert "if x.mean() > 0:" in caught.value.problem
    assert 'ignore = ["layer4"] in catro.toml' in caught.value.hint


class Defaults(Residual):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, double: bool = False) -> torch.Tensor:
        if mask is not None:
            x = x * mask
        return super().forward(x + x if double else x)


def test_arguments_behind_the_images_keep_their_defaults():
    model = randomised(Defaults())
    torch.testing.assert_close(symbolic(model).module(images()), model(images()))


class Auxiliary(Residual):
    """A second head in training, as GoogLeNet's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        logits = super().forward(x)
        return (logits, logits) if self.training else logits


class Pair(Residual):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": super().forward(x)}


def test_outputs_that_are_not_logits():
    model = randomised(Auxiliary())
    torch.testing.assert_close(evaluation_graph(model).module(images()), model(images()))
    with pytest.raises(ModelError, match=r"\bAuxiliary\b.* in training"):
        symbolic(model)
    with pytest.raises(ModelError, match=r"\bdict\b"):
        evaluation_graph(Pair())


def test_the_parts_of_a_split_may_be_gone_through():
    class Looping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.conv(x)
            thirds = [part * (place + 1) for place, part in enumerate(x.split([2, 2, 4], dim=1))]
            halves = [part.relu() for part in torch.chunk(x, chunks=2, dim=1)]
            return torch.cat([*thirds, *halves], 1).mean((2, 3))

    model = Looping()
    torch.testing.assert_close(symbolic(model).module(images()), model(images()))


class Failing(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.from_numpy(x.numpy()))


def test_an_error_that_is_no_control_flow_is_not_called_so():
    with pytest.raises(ModelError) as caught:
        evaluation_graph(Failing(), input_shape=(3, 8, 8))
    assert "TypeError: expected np.ndarray" in caught.value.problem
    assert "proxies of tensors" in caught.value.hint
    assert "ontrol flow" not in caught.value.hint


class Assigning(Residual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        x[:, :1] = 0
        return x


def test_an_assignment_to_a_part_of_a_tensor_is_called_so():
    with pytest.raises(ModelError, match=r"assigns to a part of a tensor.*torch\.cat.*x\[:, :1\] = 0") as caught:
        evaluation_graph(Assigning(), input_shape=(3, 8, 8))
    assert "NumberProxy" not in str(caught.value)


class ByNumPy(nn.Module):
    """Numbers of NumPy: a constant, and what it computes of sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = np.float64(2) * x / np.sqrt(x.shape[2]) * np.float32(0.5)
        return x * np.prod(x.shape[2:]) / np.sqrt(3.0)


def test_numbers_of_numpy_are_constants():
    model = randomised(Between(ByNumPy()))
    traced = symbolic(model, input_shape=(3, 8, 8))
    assert not traced.opaque
    torch.testing.assert_close(traced.module(images()), model(images()))
