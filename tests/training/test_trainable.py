"""What keeps a network from being trained, found before anything is trained."""

import pytest
import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.training.trainable import frozen_words, require_trainable
from tests.training.helpers import small_network

SHAPE = (3, 8, 8)


class Auxiliary(nn.Module):
    """A second head that only training computes; its logits are returned with the others, or added."""

    def __init__(self, *, returned: bool, reads: int = 4) -> None:
        super().__init__()
        self.returned = returned
        self.stem, self.second, self.head = nn.Conv2d(3, 4, 3), nn.Linear(reads, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        x = self.stem(x).mean((2, 3))
        if not self.training:
            return self.head(x)
        return (self.head(x), self.second(x)) if self.returned else self.head(x) + self.second(x)


def test_parameters_without_gradients_are_named():
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(32, 2))
    assert frozen_words(model) == ""
    model[:2].requires_grad_(False)
    assert frozen_words(model).startswith("4 of 6 parameters are not trained")
    assert frozen_words(model).endswith(": 0.weight, 0.bias, 1.weight, ...")
    require_trainable(model, SHAPE)
    model.requires_grad_(False)
    with pytest.raises(ModelError, match=r"requires_grad_\(True\)"):
        require_trainable(model, SHAPE)


def test_a_forward_that_returns_more_in_training_is_rejected():
    with pytest.raises(ModelError, match=r"in training mode, its forward returns a tuple for 2 images"):
        require_trainable(Auxiliary(returned=True), SHAPE)
    with pytest.raises(ModelError, match=r"fails in training mode: RuntimeError.*\n.*auxiliary heads"):
        require_trainable(Auxiliary(returned=False, reads=5), SHAPE)
    require_trainable(Auxiliary(returned=False), SHAPE)


def test_the_check_changes_neither_the_network_nor_random_numbers():
    model = small_network().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    require_trainable(model, SHAPE)
    assert torch.equal(torch.rand(4), expected)
    assert not model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_forward_that_fails_on_the_images_in_any_mode_is_explained():
    with pytest.raises(
        ModelError, match=r"fails on images of shape \(3, 8, 8\).*4 channels.*\n.*\[data\] size"
    ) as caught:
        require_trainable(nn.Sequential(nn.Conv2d(4, 2, 3), nn.Flatten()), (3, 8, 8))
    assert "training mode" not in str(caught.value)
