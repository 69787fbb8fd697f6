import pytest
import torch
from torch import nn
from torch.nn import functional

from catro_deploy.errors import ModelError
from catro_deploy.models.logits import logits_of

IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network(norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()


def test_logits_of_images_alone_are_those_in_a_batch():
    model = network(nn.BatchNorm2d(4))
    with torch.no_grad():
        assert torch.equal(logits_of(model, IMAGES), model(IMAGES))


def test_a_norm_by_the_statistics_of_the_batch_is_rejected():
    with pytest.raises(ModelError, match=r"depend on the other images of its batch.*\n.*track_running_stats"):
        logits_of(network(nn.BatchNorm2d(4, track_running_stats=False)), IMAGES)


class Noisy(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * torch.randn_like(x)


class Dropped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x)


@pytest.mark.parametrize("norm", [Noisy(1), Noisy(0.01), Dropped()])
def test_random_logits_are_called_so(norm):
    torch.manual_seed(0)
    with pytest.raises(ModelError, match=r"vary between calls in eval mode.*\n.*dropout") as caught:
        logits_of(network(norm), IMAGES)
    assert "other images" not in str(caught.value)


def test_logits_that_are_not_finite_are_left_to_other_checks():
    model = network(nn.Identity())
    model[4].weight.data[0] = float("nan")
    assert logits_of(model, IMAGES).isnan().any()


@pytest.mark.parametrize(
    ("model", "given"), [(nn.Identity(), r"\(6, 3, 8, 8\) for 6 images"), (nn.AdaptiveMaxPool2d(1, True), "a tuple")]
)
def test_what_is_not_logits_is_named(model, given):
    with pytest.raises(ModelError, match=given):
        logits_of(model, IMAGES)
