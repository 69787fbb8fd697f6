"""Pruning of networks whose forward methods differ from torchvision's, through the API."""

import re

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional

import catro_deploy
from catro_deploy.errors import BudgetError, MissedError, ModelError
from catro_deploy.graph.cut.surgery import apply_keeps_, masked
from tests.graph.size_networks import Padding

CLASSES = 4


def batches(size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(32) % CLASSES
    return [(torch.randn(32, 3, size, size, generator=generator) + labels[:, None, None, None], labels)]


class OctaveConv2d(nn.Conv2d):
    """A convolution that reads and outputs feature maps of two resolutions."""

    def forward(self, maps: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        high, low = maps
        out, read = self.out_channels // 2, self.in_channels // 2
        to_high, to_low = self.weight[:out], self.weight[out:]
        down = functional.avg_pool2d(high, 2)
        up = functional.interpolate(functional.conv2d(low, to_high[:, read:], padding=1), scale_factor=2.0)
        return (
            functional.conv2d(high, to_high[:, :read], padding=1) + up,
            functional.conv2d(down, to_low[:, :read], padding=1) + functional.conv2d(low, to_low[:, read:], padding=1),
        )


class Octave(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)
        self.octave = OctaveConv2d(16, 8, 3, bias=False)
        self.last, self.fc = nn.Conv2d(4, 16, 1), nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.wide(torch.relu(self.stem(x))))
        high, low = self.octave((x, functional.avg_pool2d(x, 2)))
        return self.fc(torch.relu(self.last(functional.avg_pool2d(high, 2) + low)).mean((2, 3)))


def vision_transformer() -> nn.Module:
    return timm.models.vision_transformer.VisionTransformer(
        32, 8, embed_dim=48, depth=2, num_heads=3, num_classes=CLASSES
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::catro_deploy.errors.CatroWarning")
@pytest.mark.parametrize("reconstruct", [True, False])
@pytest.mark.parametrize(
    ("network", "size", "budget"),
    [(Padding, 17, "50%flops"), (Octave, 16, "75%flops"), (vision_transformer, 32, "70%flops")],
)
def test_pruned_networks_equal_the_masked_original(network, size, budget, reconstruct):
    torch.manual_seed(0)
    model, data = network().eval(), batches(size)
    pruned = catro_deploy.prune(model, data, budget=budget, compute="cpu", reconstruct=reconstruct)
    plan, images = pruned.plan, data[0][0]
    assert plan.pruned_macs / plan.original_macs <= int(budget[:2]) / 100
    cut = apply_keeps_(network().eval(), plan.keeps)
    cut.load_state_dict(apply_keeps_(pruned.original, plan.keeps).state_dict())
    with torch.inference_mode():
        torch.testing.assert_close(cut(images), masked(model, plan.keeps)(images), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::catro_deploy.errors.CatroWarning")
def test_of_a_vision_transformer_the_hidden_widths_of_its_mlps_are_pruned():
    torch.manual_seed(0)
    pruned = catro_deploy.prune(vision_transformer().eval(), batches(32), budget="70%flops", compute="cpu")
    cut = {group.name for group in pruned.plan.groups if len(group.kept) < group.width}
    assert cut == {"blocks.0.mlp.fc1", "blocks.1.mlp.fc1"}
    assert all(group.fixed for group in pruned.plan.groups if ".mlp.fc1" not in group.name)


@pytest.mark.filterwarnings("ignore::catro_deploy.errors.CatroWarning")
def test_a_budget_that_what_stays_does_not_allow():
    with pytest.raises(BudgetError) as caught:
        catro_deploy.prune(vision_transformer().eval(), batches(32), budget="20%flops", compute="cpu")
    assert re.search(r"of the cost stays with blocks.0.attn.qkv: \w+ has an unknown effect on them", str(caught.value))
    assert "stays with attention, recurrent layers" in str(caught.value)


class Guarded(nn.Module):
    """A module whose forward depends on the values of its feature maps, so that it cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 64, 3, padding=1), nn.Conv2d(64, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))) if x.mean() > -100 else x


@pytest.mark.filterwarnings("ignore::catro_deploy.errors.CatroWarning")
def test_a_budget_of_latency_that_an_untraceable_module_does_not_allow():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3),
        Guarded(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )
    with pytest.raises(MissedError, match=r"\b0\.1x\b.*\(estimate\)") as caught:
        catro_deploy.prune(model.eval(), batches(64), budget="0.1x", target="jetson-orin", compute="cpu")
    share = re.search(r"([\d.]+)% of the cost stays with 3\.(first|second): ", str(caught.value))
    assert share is not None, caught.value
    assert 20 < float(share[1]) <= 100


def test_one_logit():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1))
    with pytest.raises(ModelError, match="one logit"):
        catro_deploy.prune(model, batches(8), budget="50%flops")
