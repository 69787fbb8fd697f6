"""A network that resizes its images computes the same as the original on images resized beforehand."""

import copy

import onnxruntime
import pytest
import torch
from torch import fx
from torch.nn import functional

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.graph.resizing import resizing
from catro_deploy.models import build_model
from tests.tiny import Blocks

SIZE = (24, 20)
SHAPE = (3, 32, 32)


@pytest.fixture
def images():
    return torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return build_model("cifar_resnet20", 5).eval()


@pytest.mark.parametrize("kind", [lambda model: model, fx.symbolic_trace], ids=["module", "graph module"])
@pytest.mark.parametrize("copied", [False, True])
def test_images_are_resized_first(model, images, kind, copied):
    resized = resizing(kind(model), SIZE)
    resized = copy.deepcopy(resized) if copied else resized
    expected = model(functional.interpolate(images, SIZE, mode="bilinear"))
    assert torch.equal(resized(images), expected)
    assert not torch.equal(model(images), expected)  # the given model does not change
    assert resized.state_dict().keys() == model.state_dict().keys()


def test_a_trace_sees_the_smaller_feature_maps_and_the_same_groups(model):
    own, resized = trace(model, SHAPE), trace(resizing(model, (16, 16)), SHAPE)
    assert [group.name for group in resized.groups] == [group.name for group in own.groups]
    assert [(a.name, 4 * a.positions) for a in resized.layers if a.name != "fc"] == [
        (b.name, b.positions) for b in own.layers if b.name != "fc"
    ]


@pytest.mark.parametrize("dynamic_batch", [False, True])
def test_the_onnx_file_takes_images_of_the_original_size(tmp_path, images, dynamic_batch):
    torch.manual_seed(0)
    resized = resizing(Blocks(3).eval(), (20, 20))
    export_onnx(resized, SHAPE, tmp_path / "resized.onnx", opset=18, metadata={}, dynamic_batch=dynamic_batch)
    session = onnxruntime.InferenceSession(tmp_path / "resized.onnx", providers=["CPUExecutionProvider"])
    given = images if dynamic_batch else images[:1]
    (found,) = session.run(None, {"image": given.numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), resized(given), rtol=1e-4, atol=1e-5)
