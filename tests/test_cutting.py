import pytest
import torch

from catro_deploy.cutting import _check_equal
from catro_deploy.errors import FaultError
from catro_deploy.graph.surgery import apply_keeps_, masked
from catro_deploy.records import Keep
from tests.stages.test_prune import SHAPE, lively


def test_channels_that_were_coupled_wrongly_are_found():
    kept = (0, 1, 5)
    right = {"conv1": Keep(out=kept), "bn1": Keep(out=kept), "conv2": Keep(inputs=kept)}
    wrong = right | {"conv2": Keep(inputs=(0, 1, 6))}
    images = torch.randn(8, *SHAPE, generator=torch.Generator().manual_seed(0))
    reference = masked(lively(), right)
    _check_equal(apply_keeps_(lively(), right), reference, images)
    with pytest.raises(FaultError, match="coupled wrongly") as caught:
        _check_equal(apply_keeps_(lively(), wrong), reference, images)
    assert "Nothing was written" in caught.value.hint


def test_answers_that_are_not_numbers_are_no_agreement():
    broken = lively()
    broken.fc.bias.data[0] = torch.nan
    with pytest.raises(FaultError):
        _check_equal(broken, broken, torch.zeros(2, *SHAPE))
