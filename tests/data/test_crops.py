"""Random crops of image files: torchvision's boxes, and its pixels up to the error of decoding at a reduced size."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from catro_deploy.data import crops
from catro_deploy.data.crops import RandomCrop, crop_box
from catro_deploy.data.decoding import decode
from catro_deploy.data.form import ImageForm


def photo(path, width, height, **options):
    """Write an image of smooth colours with edges, like a photograph."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    pixels = np.stack([np.sin(9 * x + 3 * y), np.cos(7 * y), (np.hypot(x - 0.4, y - 0.3) < 0.2) * 2.0 - 1], axis=-1)
    Image.fromarray((pixels * 100 + 128).astype(np.uint8)).save(path, **options)
    return path


def of_torchvision(path, seed, side, least_area):
    """The result of v2.RandomResizedCrop for the file with this seed."""
    torch.manual_seed(seed)
    transform = v2.Compose([v2.RandomResizedCrop(side, scale=(least_area, 1.0)), v2.PILToTensor()])
    with Image.open(path) as file:
        return transform(file.convert("RGB")).numpy()


@pytest.mark.parametrize(("width", "height"), [(300, 200), (201, 333), (40, 40), (900, 20)])
def test_crops_are_those_of_torchvision(tmp_path, width, height):
    path = photo(tmp_path / "a.png", width, height)
    for seed in range(5):
        own = decode(path, RandomCrop(ImageForm((64, 64), 3), 0.08, seed))
        np.testing.assert_array_equal(own, of_torchvision(path, seed, 64, 0.08))


def test_a_large_jpeg_is_decoded_at_reduced_size_and_looks_the_same(tmp_path, monkeypatch):
    path = photo(tmp_path / "a.jpg", 1600, 1200, quality=92)
    framing, sizes = RandomCrop(ImageForm((112, 112), 3), 0.3, 1), []
    monkeypatch.setattr(crops, "draft", lambda file, size: sizes.append(found := DRAFT(file, size)) or found)
    own = decode(path, framing)
    assert sizes[0][0] >= 2
    expected = of_torchvision(path, 1, 112, 0.3).astype(int)
    assert np.abs(own - expected).mean() < 1.5


DRAFT = crops.draft


def test_no_crop_is_decoded_smaller_than_it_becomes(tmp_path):
    path = photo(tmp_path / "a.jpg", 640, 480)
    for seed in range(20):
        left, top, right, bottom = crop_box((640, 480), (100, 100), 0.08, seed)
        with Image.open(path) as file:
            across, down = crops.draft(file, (640 * 100 / (right - left), 480 * 100 / (bottom - top)))
        if across > 1:
            assert (right - left) / across >= 99.5
            assert (bottom - top) / down >= 99.5


def test_crops_of_oblong_inputs_keep_things_in_shape():
    for seed in range(50):
        left, top, right, bottom = crop_box((900, 600), (160, 320), 0.1, seed)
        assert 2 * 0.74 <= (right - left) / (bottom - top) <= 2 * 1.36
        assert 0 <= left < right <= 900
        assert 0 <= top < bottom <= 600


def test_grey_crops(tmp_path):
    path = photo(tmp_path / "a.jpg", 90, 60)
    assert decode(path, RandomCrop(ImageForm((32, 32), 1), 0.3, 0)).shape == (1, 32, 32)


def test_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    crop_box((90, 60), (32, 32), 0.1, 5)
    assert torch.equal(torch.rand(2), expected)


def test_in_memory_crops_are_resized_as_torchvision_does():
    from catro_deploy.data.base import MemorySplit
    from catro_deploy.training.photos import PerImage

    pixels = torch.randint(0, 256, (3, 3, 40, 40), dtype=torch.uint8)
    split = MemorySplit(pixels, np.zeros(3, np.int64))
    found = PerImage(0.2, 0).read(split, np.array([2, 0]), lambda index: index)
    for image, index in zip(found, (2, 0), strict=True):
        torch.manual_seed(index)
        assert torch.equal(image, v2.RandomResizedCrop(40, scale=(0.2, 1.0))(pixels[index]))
    assert functional.get_size(found) == [40, 40]
