"""The device, number format and memory layout that a network is trained with."""

import pytest
import torch
import torchvision.ops
from torch import nn

from catro_deploy.training.compute import Hardware, can_run, choose_hardware

CHANNELS_LAST = Hardware(torch.device("cpu"), None, torch.channels_last)
INTEL, AMD = "Intel(R) Xeon(R) Processor", "AMD EPYC"


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


@pytest.mark.parametrize("name", [INTEL, AMD])
def test_a_layout_that_onednn_gets_wrong_is_kept_away_from_it(processor, name):
    processor(name)
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Conv2d(4, 32, 1, stride=2, padding=1))
    assert choose_hardware(model, "cpu", amp=False).memory_format == torch.contiguous_format


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


def flattening(how: str) -> nn.Module:
    class Flattening(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 32, 3), nn.Linear(32 * 36, 4)

        def forward(self, images):
            return self.head(getattr(self.conv(images), how)(len(images), -1))

    return Flattening()


def test_a_network_that_views_maps_as_rows_is_kept_out_of_channels_last(processor):
    processor(AMD)
    assert not can_run(flattening("view"), CHANNELS_LAST, (3, 8, 8))
    assert choose_hardware(flattening("view"), "cpu", False, (3, 8, 8)).memory_format == torch.contiguous_format
    assert choose_hardware(flattening("reshape"), "cpu", False, (3, 8, 8)).memory_format == torch.channels_last


def test_a_network_with_a_convolution_in_3d_is_kept_out_of_channels_last(processor):
    class Frames(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv3d(1, 4, 3), nn.Conv2d(4, 2, 6)

        def forward(self, images):
            return self.head(self.conv(images[:, None]).squeeze(2)).flatten(1)

    processor(AMD)
    assert choose_hardware(Frames(), "cpu", False, (3, 8, 8)).memory_format == torch.contiguous_format


def test_an_operator_without_a_kernel_for_bfloat16_keeps_the_network_in_float32(processor):
    class Deformable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.offset, self.conv = nn.Conv2d(3, 18, 3, padding=1), torchvision.ops.DeformConv2d(3, 32, 3, padding=1)

        def forward(self, images):
            return self.conv(images, self.offset(images)).mean((2, 3))

    processor(AMD, "avx512_bf16")
    chosen = choose_hardware(Deformable(), "cpu", True, (3, 8, 8))
    assert (chosen.dtype, chosen.memory_format) == (None, torch.channels_last)
    assert choose_hardware(flattening("view"), "cpu", True, (3, 8, 8)).dtype == torch.bfloat16


def test_asking_whether_a_layout_fits_leaves_the_network_as_it_was():
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.Flatten(), nn.Linear(32 * 36, 4)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert can_run(model, CHANNELS_LAST, (3, 8, 8))
    assert model.training
    assert model[0].weight.is_contiguous()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
