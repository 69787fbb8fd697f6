"""Where a network trains: a layout that oneDNN gets wrong is kept away from it."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from catro_deploy.training.device import choose_hardware, suffers_channels_last

INTEL, AMD = "Intel(R) Xeon(R) Processor", "AMD EPYC"

# Gradients of a convolution that writes past its workspace: a few steps, and the heap is corrupt.
TRAIN = """
import sys
import torch
from torch import nn
from catro_deploy.progress import Silent
from catro_deploy.training.compiling import compiled
from catro_deploy.training.device import choose_hardware

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 32, 1, stride=2), nn.Conv2d(32, 32, 3))
images = torch.randn(64, 3, 16, 16)
hardware = choose_hardware(model, "cpu", amp=sys.argv[1] == "amp")
model, gradients = hardware.place(model), []
for fast in (model, compiled(model, images, hardware, Silent())):
    for _ in range(30):
        model.zero_grad()
        with hardware.autocast():
            answers = fast(images)
        answers.float().square().mean().backward()
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


@pytest.fixture
def processor(monkeypatch):
    def pretend(name: str, *abilities: str) -> None:
        found = {"cpu_name": name, **dict.fromkeys(abilities, True)}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)

    return pretend


def test_the_memory_format_follows_the_widths(processor):
    processor(INTEL)
    wide, odd = nn.Conv2d(3, 64, 3), nn.Conv2d(3, 21, 3)
    assert choose_hardware(wide, "cpu", amp=False).memory_format == torch.channels_last
    assert choose_hardware(odd, "cpu", amp=False).memory_format == torch.contiguous_format
    assert choose_hardware(odd, "cpu", amp=False).dtype is None


def test_amd_s_processors_train_odd_widths_in_channels_last_too(processor):
    processor(AMD)
    assert choose_hardware(nn.Conv2d(3, 21, 3), "cpu", amp=False).memory_format == torch.channels_last
    suffering = nn.Conv2d(4, 32, 1, stride=2)
    assert choose_hardware(suffering, "cpu", amp=False).memory_format == torch.contiguous_format


@pytest.mark.parametrize(
    ("name", "abilities", "low"),
    [
        (INTEL, ["avx512_bf16", "amx_bf16"], torch.bfloat16),
        (INTEL, ["avx512_bf16"], None),
        (AMD, ["avx512_bf16"], torch.bfloat16),
        (AMD, ["avx2"], None),
    ],
)
def test_bfloat16_is_for_processors_that_are_fast_in_it(processor, name, abilities, low):
    processor(name, *abilities)
    assert choose_hardware(nn.Conv2d(3, 21, 3), "cpu", amp=True).dtype == low
    assert choose_hardware(nn.Conv2d(3, 21, 3), "cpu", amp=False).dtype is None


def test_without_known_capabilities_it_stays_in_float32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    hardware = choose_hardware(nn.Conv2d(3, 21, 3), "cpu", amp=True)
    assert (hardware.dtype, hardware.memory_format) == (None, torch.contiguous_format)


@pytest.mark.parametrize(("groups", "low"), [(1, torch.bfloat16), (2, torch.bfloat16), (24, None)])
def test_depthwise_networks_train_in_float32_and_channels_last(processor, groups, low):
    processor(INTEL, "amx_bf16")
    hardware = choose_hardware(nn.Sequential(nn.Conv2d(24, 24, 3, groups=groups)), "cpu", amp=True)
    assert hardware.dtype == low
    assert hardware.memory_format == (torch.contiguous_format if low else torch.channels_last)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", ["float32", "amp"])
def test_its_gradients_are_right_plain_and_compiled(numbers):
    done = subprocess.run([sys.executable, "-c", TRAIN, numbers], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
