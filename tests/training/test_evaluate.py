import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy import memory
from catro_deploy.data.base import MemorySplit
from catro_deploy.progress import Silent
from catro_deploy.training.evaluate import accuracy, predict
from catro_deploy.training.pixels import decode_once
from tests.training.helpers import MEAN, STD, separable_split, small_network


def test_predict_does_not_depend_on_the_batch_size_and_keeps_the_mode():
    model, split = small_network().train(), separable_split(10)
    whole = predict(model, split, MEAN, STD, batch_size=10)
    assert whole.shape == (10, 3)
    assert whole.dtype == torch.float32
    torch.testing.assert_close(predict(model, split, MEAN, STD, batch_size=3), whole, atol=1e-6, rtol=1e-5)
    assert model.training
    assert not any(p.grad is not None for p in model.parameters())


def test_layers_keep_the_mode_that_they_were_in():
    model = nn.Sequential(small_network(), nn.Dropout()).train()
    model[0].eval()
    before = [module.training for module in model.modules()]
    predict(model, separable_split(10), MEAN, STD, batch_size=10)
    assert [module.training for module in model.modules()] == before


def test_predict_keeps_the_order_of_the_images():
    pixels = torch.arange(7, dtype=torch.uint8).view(7, 1, 1, 1)
    logits = predict(nn.Flatten(), MemorySplit(pixels, np.zeros(7, np.int64)), (0.0,), (1 / 255,), batch_size=2)
    torch.testing.assert_close(logits.flatten(), torch.arange(7.0))


def test_pages_of_feature_maps_are_reused():
    found = []
    network = nn.Flatten()
    network.register_forward_hook(lambda *_: found.append(memory._MALLOC._open_blocks))
    predict(network, separable_split(10), MEAN, STD, batch_size=4)
    assert found == [1, 1, 1]


def test_no_images_give_no_logits():
    empty = MemorySplit(torch.zeros((0, 3, 8, 8), dtype=torch.uint8), np.zeros(0, np.int64))
    assert len(predict(small_network(), empty, MEAN, STD, batch_size=4)) == 0


def test_accuracy_by_hand():
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 2.0], [0.0, 9.0]])
    assert accuracy(logits, np.array([0, 1, 1, 1])) == pytest.approx(0.75)


class Counted:
    """A split that counts how many images were decoded."""

    def __init__(self, split):
        self.split, self.labels, self.decoded = split, split.labels, 0

    def images(self, indices):
        self.decoded += len(indices)
        return self.split.images(indices)


@pytest.mark.parametrize(("largest_bytes", "kept"), [(1200 * 3 * 8 * 8, True), (1200 * 3 * 8 * 8 - 1, False)])
def test_images_are_held_if_they_fit(largest_bytes, kept):
    split = Counted(separable_split(1200))
    decoded = decode_once(split, torch.device("cpu"), Silent(), "reading", largest_bytes)
    assert isinstance(decoded, MemorySplit) == kept
    before = split.decoded
    assert torch.equal(decoded.images([3, 1199]), split.split.images([3, 1199]))
    assert (split.decoded == before) == kept
