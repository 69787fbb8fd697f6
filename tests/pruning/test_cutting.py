import functools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from catro_deploy.errors import FaultError, ModelError
from catro_deploy.graph.coupling.trace import find_head
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, masked
from catro_deploy.pruning.cutting import Classifier, _check_equal, with_classes
from catro_deploy.records import Keep
from tests.graph.cut_networks import CASES
from tests.stages.test_prune import SHAPE, lively

NOT_ONE_LAYER = {"OneAndThree"}
"""Networks whose logits are the sum of two layers' outputs."""


def test_channels_that_were_coupled_wrongly_are_found():
    kept = (0, 1, 5)
    right = {"conv1": Keep(out=kept), "bn1": Keep(out=kept), "conv2": Keep(inputs=kept)}
    wrong = right | {"conv2": Keep(inputs=(0, 1, 6))}
    images = torch.randn(8, *SHAPE, generator=torch.Generator().manual_seed(0))
    reference = masked(lively(), right)
    _check_equal(apply_keeps_(lively(), right), reference, images)
    with pytest.raises(FaultError) as caught:
        _check_equal(apply_keeps_(lively(), wrong), reference, images)
    assert "Nothing was written" in caught.value.hint


def test_predictions_that_are_not_numbers_are_no_agreement():
    broken = lively()
    broken.fc.bias.data[0] = torch.nan
    with pytest.raises(FaultError):
        _check_equal(broken, broken, torch.zeros(2, *SHAPE))


class Amplifying(nn.Module):
    """A convolution of many channels whose outputs pass 1 - 2|x| so often that float32 rounding decides them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.conv2 = nn.Conv2d(3, 64, 3), nn.Conv2d(64, 8, 3)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.conv2(torch.relu(self.conv1(x))))
        for _ in range(24):
            x = 1 - 2 * x.abs()
        return self.fc(x.mean((2, 3)))


def test_amplified_rounding_is_no_fault():
    kept = tuple(range(1, 64, 3))
    images = torch.randn(8, *SHAPE, generator=torch.Generator().manual_seed(0))
    right = {"conv1": Keep(out=kept), "conv2": Keep(inputs=kept)}
    reference, pruned = masked(Amplifying(), right), apply_keeps_(Amplifying(), right)
    with torch.inference_mode():
        assert float((reference(images) - pruned(images)).abs().max()) > 0.01
    _check_equal(pruned, reference, images)
    wrong = {"conv1": Keep(out=kept), "conv2": Keep(inputs=(0, *kept[1:]))}
    with pytest.raises(FaultError):
        _check_equal(apply_keeps_(Amplifying(), wrong), reference, images)


@functools.cache
def head_of(name: str) -> str:
    return find_head(CASES[name].network(0), (3, 8, 8))


def classifier(name: str, seed: int) -> Classifier:
    model = CASES[name].network(seed)
    count = model(drawn_images(seed)).shape[1]
    names = tuple(map(str, range(count)))
    return Classifier(model, (3, 8, 8), head_of(name), names, tuple(range(count)), "", (), ())


def drawn_images(seed: int) -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@given(name=st.sampled_from(sorted(CASES)), seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=40)
def test_logits_come_in_the_order_of_the_wanted_classes_or_the_network_is_refused(name, seed):
    """Any classes in any order, combined with any choice of channels."""
    whole, images, pick = classifier(name, seed), drawn_images(seed), random.Random(seed)
    count = len(whole.classes)
    wanted = tuple(pick.sample(range(count), pick.randint(2, count)))
    case = CASES[name]
    kept = {one.name: sorted(pick.sample(range(one.width), pick.randint(1, one.width))) for one in case.groups}
    keeps = keeps_of(case.groups, kept, case.sizes)
    with torch.inference_mode():
        expected = whole.model(images)[:, wanted]
        expected_cut = masked(whole.model, keeps)(images)[:, wanted]
    try:
        found = with_classes(whole, wanted, images)
    except ModelError:
        assert name in NOT_ONE_LAYER
        return
    assert name not in NOT_ONE_LAYER or found.has_whole_head
    assert found.wanted == wanted
    with torch.inference_mode():
        torch.testing.assert_close(found.model(images), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(apply_keeps_(found.model, keeps)(images), expected_cut, rtol=1e-4, atol=1e-4)
