"""Reconstruction: nothing is lost where nothing has to be, and what is solved is what the network gets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.reconstruction import solve
from tests.reconstruction.networks import KINDS, answers, deviation, images, solved, with_copies


@pytest.fixture(autouse=True, scope="module")
def _hardly_any_ridge():
    """The ridge pulls towards the old weights: with it a copy is made up for to one part in a thousand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "RIDGE", 1e-9)
        patch.setattr(solve, "VECTOR_RIDGE", 1e-9)
        yield


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=4)
@given(seed=st.integers(0, 10_000))
def test_nothing_is_lost_with_channels_of_which_copies_stay(kind, seed):
    model, keeps = with_copies(KINDS[kind], seed)
    found = solved(model, keeps, images(dtype=torch.float64), dtype=torch.float64)
    new = images(16, seed=1)
    expected = answers(model, new)
    after = answers(found.after.module, [batch.double() for batch in new])
    assert deviation(after, expected) < 1e-4
    assert deviation(answers(found.model, new), expected) < 1e-4
