"""Where a network trains: a layout that oneDNN gets wrong is kept away from it."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from catro_deploy.training.device import choose_hardware, suffers_channels_last

# Gradients of a convolution that writes past its workspace: a few steps, and the heap is corrupt.
TRAIN = """
import torch
from torch import nn
from catro_deploy.progress import Silent
from catro_deploy.training.compiling import compiled
from catro_deploy.training.device import choose_hardware

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 32, 1, stride=2), nn.Conv2d(32, 32, 3))
images = torch.randn(64, 3, 16, 16)
hardware = choose_hardware(model, "cpu", amp=False)
model, gradients = hardware.place(model), []
for fast in (model, compiled(model, images, hardware, Silent())):
    for _ in range(30):
        model.zero_grad()
        fast(images).square().mean().backward()
        junk = [torch.randn(1000 + 37 * i) for i in range(20)]
    gradients.append(model[2].weight.grad.clone())
double = nn.Sequential(*model).double()
double.zero_grad()
double(images.double()).square().mean().backward()
for found in gradients:
    torch.testing.assert_close(found.double(), double[2].weight.grad, rtol=1e-4, atol=1e-6)
"""


@pytest.mark.parametrize(
    ("layer", "suffers"),
    [
        (nn.Conv2d(4, 32, 1, stride=2), True),
        (nn.Conv2d(16, 32, 1, stride=2), False),
        (nn.Conv2d(4, 32, 1), False),
        (nn.Conv2d(4, 32, 3, stride=2), False),
    ],
)
def test_which_convolutions_suffer(layer, suffers):
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), layer)
    assert suffers_channels_last(model) is suffers
    expected = torch.contiguous_format if suffers else torch.channels_last
    assert choose_hardware(model, "cpu", amp=False).memory_format == expected


def test_the_memory_format_follows_the_widths():
    wide, odd = nn.Conv2d(3, 64, 3), nn.Conv2d(3, 21, 3)
    assert choose_hardware(wide, "cpu", amp=False).memory_format == torch.channels_last
    assert choose_hardware(odd, "cpu", amp=False).memory_format == torch.contiguous_format
    assert choose_hardware(odd, "cpu", amp=False).dtype is None


@pytest.mark.parametrize(("groups", "low"), [(1, torch.bfloat16), (2, torch.bfloat16), (24, None)])
def test_depthwise_networks_train_in_float32_and_channels_last(monkeypatch, groups, low):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    hardware = choose_hardware(nn.Sequential(nn.Conv2d(24, 24, 3, groups=groups)), "cpu", amp=True)
    assert hardware.dtype == low
    assert hardware.memory_format == (torch.contiguous_format if low else torch.channels_last)


@pytest.mark.slow
def test_its_gradients_are_right_plain_and_compiled():
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
