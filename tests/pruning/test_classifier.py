"""The images from which layers are reconstructed: a shuffled part of all batches, none of it twice in memory."""

import pytest
import torch

from catro_deploy.pruning.classifier import _some_images
from catro_deploy.training.normalised import NormalisedBatches

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.5, 0.2)


def drawn(*counts: int) -> list[tuple[torch.Tensor, int]]:
    generator = torch.Generator().manual_seed(0)
    shape = (3, 4, 5)
    return [
        (torch.randint(0, 256, (n, *shape), generator=generator, dtype=torch.uint8), label)
        for label, n in enumerate(counts)
    ]


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_bytes_become_numbers_when_they_are_read_and_are_then_those_of_images_in_memory(layout):
    pixels = drawn(5, 3, 4)
    lazy = NormalisedBatches(pixels, MEAN, STD)
    found, expected = (list(_some_images(batches, 9, 4, layout)) for batches in (lazy, list(lazy)))
    assert [len(batch) for batch in found] == [4, 4, 1]
    for batch, other in zip(found, expected, strict=True):
        assert torch.equal(batch, other)
        assert batch.is_contiguous(memory_format=layout)


def test_they_are_of_all_batches_and_mixed():
    batches = [(torch.full((8, 1, 1, 1), float(label)), label) for label in range(4)]
    values = torch.cat(list(_some_images(batches, 12, 5, torch.contiguous_format))).flatten().tolist()
    assert [values.count(label) for label in range(4)] == [3, 3, 3, 3]
    assert values != sorted(values)


def test_nothing_is_copied_before_it_is_read():
    batches = [(torch.zeros(4, 1, 2, 2), 0), (torch.zeros(4, 1, 2, 2), 1)]
    found = _some_images(batches, 8, 4, torch.contiguous_format)
    for images, label in batches:
        images.fill_(label + 1)
    assert sorted(torch.cat(list(found)).amax((1, 2, 3)).tolist()) == [1, 1, 1, 1, 2, 2, 2, 2]
