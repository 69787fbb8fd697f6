"""Normalisation: the implementations in PyTorch and, for the device, in numpy give the same numbers."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.agent.images import normalise as normalise_on_device
from catro_deploy.data.pixels import normalise, scaled, standardise, undo_standardise

MEAN, STD = (0.3403, 0.3121, 0.3214), (0.2724, 0.2608, 0.2669)
EVERY = np.tile(np.arange(256, dtype=np.uint8), (1, 3, 1)).reshape(1, 3, 16, 16)
CHANNELS = st.tuples(*[st.floats(0, 1)] * 3)


def test_a_pixel_by_hand():
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    assert normalise(pixels, (0.5, 0.2, 0.0), (0.25, 1.0, 0.5)).flatten().tolist() == [-2.0, 0.0, 2.0]


@given(CHANNELS, st.tuples(*[st.floats(1e-3, 1)] * 3))
def test_the_device_computes_the_same_numbers_to_the_bit(mean, std):
    there = normalise_on_device(EVERY, mean, std)
    assert there.dtype == np.float32
    assert np.array_equal(there, normalise(torch.from_numpy(EVERY), mean, std).numpy())


def test_standardising_can_be_undone():
    images = scaled(torch.from_numpy(EVERY))
    again = undo_standardise(standardise(images, MEAN, STD), MEAN, STD)
    torch.testing.assert_close(again, images)
