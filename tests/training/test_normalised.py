"""Batches that are normalised on access."""

import pytest
import torch

from catro_deploy.training.normalised import NormalisedBatches


def test_pixels_become_numbers_when_read():
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    batches = NormalisedBatches([(pixels, 4), (pixels[:1], 7)], mean=(0.5,), std=(0.25,))
    assert len(batches) == 2
    assert [label for _, label in batches] == [4, 7]
    assert batches[0][0].flatten().tolist() == [-2.0, 2.0]  # (0 - 0.5) / 0.25 and (1 - 0.5) / 0.25
    assert [label for _, label in batches[1:]] == [7]
    with pytest.raises(IndexError):
        batches[2]
