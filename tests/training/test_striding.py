"""Narrow strided convolutions that stride first give the same results, with gradients that oneDNN gets right."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from catro_deploy.training.striding import striding_first, suffers_channels_last

# Gradients of a convolution that writes past its workspace: after a few steps the heap is corrupt.
TRAIN = """
import dataclasses
import sys
import torch
from torch import nn
from catro_deploy.progress import Silent
from catro_deploy.training.compiling import compiled
from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.striding import striding_first

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 32, 1, stride=2), nn.Conv2d(32, 32, 3))
images = torch.randn(64, 3, 16, 16)
hardware = choose_hardware(model, "cpu", amp=sys.argv[1] == "amp")
hardware = dataclasses.replace(hardware, memory_format=torch.channels_last)
model, gradients = hardware.place(model), []
images = images.contiguous(memory_format=torch.channels_last)
with striding_first(model):
    for fast in (model, compiled(model, images, hardware, Silent())):
        for _ in range(30):
            model.zero_grad()
            with hardware.autocast():
                outputs = fast(images)
            outputs.float().square().mean().backward()
            junk = [torch.randn(1000 + 37 * i) for i in range(20)]
        gradients.append(model[2].weight.grad.clone())
double = nn.Sequential(*model).double()
double.zero_grad()
double(images.double()).square().mean().backward()
right = double[2].weight.grad
for found in gradients:
    error = (found - right).norm() / right.norm()
    assert error < (1e-4 if hardware.dtype is None else 2e-2), error
"""


class Own(nn.Conv2d):
    """A convolution with its own forward."""

    def forward(self, images):
        return super().forward(images)


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize(
    ("conv", "suffers"),
    [
        (nn.Conv2d(4, 32, 1, stride=2), False),
        (nn.Conv2d(4, 32, 1, stride=2, padding=1), True),
        (Own(4, 32, 1, stride=2), True),
        (Own(16, 32, 1, stride=2), False),
        (Own(4, 32, 1), False),
        (Own(4, 32, 3, stride=2), False),
    ],
)
def test_what_suffers_is_what_cannot_stride_first(conv, suffers):
    assert suffers_channels_last(nn.Sequential(nn.Conv2d(3, 4, 3), conv)) is suffers


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(4, 6, 1, stride=2),
        nn.Conv2d(4, 6, 1, stride=(1, 3), bias=False),
        nn.Conv2d(4, 6, 1, stride=2, groups=2),
        nn.Conv2d(4, 6, 1, stride=3, padding=1),
        parametrize.register_parametrization(nn.Conv2d(4, 6, 1, stride=2), "weight", Doubled()),
    ],
)
@pytest.mark.parametrize("size", [(8, 8), (7, 9)])
def test_outputs_and_gradients_stay_the_same(conv, size):
    model = nn.Sequential(conv).double()
    images = torch.randn(3, 4, *size, dtype=torch.float64, requires_grad=True)
    wanted = (model(images), *_gradients(model, images))
    with striding_first(model):
        found = (model(images), *_gradients(model, images))
    torch.testing.assert_close(found, wanted)


def _gradients(model, images):
    return torch.autograd.grad(model(images).square().sum(), [images, *model.parameters()])


def test_convolutions_stride_first_only_within_the_block():
    model = nn.Sequential(nn.Conv2d(4, 6, 1, stride=2))

    def operators():
        graph = torch.export.export(model, (torch.randn(1, 4, 8, 8),)).graph
        return [str(node.target) for node in graph.nodes]

    def interrupted():
        with striding_first(model):
            meanwhile.extend(operators())
            raise KeyboardInterrupt

    before, meanwhile = operators(), []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert any("slice" in name for name in meanwhile)
    assert operators() == before
    assert not any("slice" in name for name in before)


def test_compiled_code_strides_first_too():
    model, graphs = nn.Sequential(nn.Conv2d(4, 6, 1, stride=2)), []

    def backend(graph, _):
        graphs.append(graph.code)
        return graph.forward

    with striding_first(model):
        torch.compile(model, backend=backend)(torch.randn(1, 4, 8, 8))
    (code,) = graphs
    assert "slice(None, None, 2)" in code


def test_what_does_not_compute_on_a_cpu_stays_as_it_is():
    conv = nn.Conv2d(4, 6, 1, stride=2, device="meta")
    with striding_first(nn.Sequential(conv)):
        assert vars(conv).keys() == vars(nn.Conv2d(4, 6, 1)).keys()


@pytest.mark.slow
@pytest.mark.parametrize("numbers", ["float32", "amp"])
def test_gradients_are_right_plain_and_compiled(numbers):
    done = subprocess.run([sys.executable, "-c", TRAIN, numbers], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
