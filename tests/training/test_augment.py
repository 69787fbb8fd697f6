from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from catro_deploy.data.pixels import normalise
from catro_deploy.training import augment as module
from catro_deploy.training.augment import KINDS, Jitter, augment

PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def noise(count=4, height=12, width=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, height, width), generator=generator, dtype=torch.uint8)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_normalise_by_hand():
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    result = normalise(pixels, mean=(0.5, 0.1, 0.2), std=(0.25, 0.5, 2.0))
    # 0/255 = 0, 51/255 = 0.2, 255/255 = 1
    torch.testing.assert_close(result.flatten(), torch.tensor([-2.0, 0.2, 0.4]))
    assert result.dtype == torch.float32


def test_no_augmentation_is_only_normalisation():
    pixels = noise()
    result = augment(pixels, KINDS["none"], generator(), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    assert torch.equal(result, normalise(pixels, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)))


@pytest.mark.parametrize(("height", "width"), [(12, 12), (9, 20)])
def test_the_resampling_with_parameters_that_change_nothing_leaves_the_image(height, width):
    # The smallest jitter that still triggers resampling.
    pixels = noise(height=height, width=width)
    result = augment(pixels, Jitter(rotation_degrees=1e-9), generator(), **PLAIN)
    torch.testing.assert_close(result, pixels.float() / 255, atol=1e-4, rtol=0)


def test_whole_pixel_shifts_move_pixels_without_blurring_them():
    pixels = noise(count=8, height=16, width=16)
    result = augment(pixels, KINDS["rigid"], generator(1), **PLAIN)
    original = pixels.float() / 255
    offsets = range(-2, 3)  # an eighth of 16 pixels
    for image, before in zip(result, original, strict=True):
        differences = [
            (image[:, 4:12, 4:12] - before[:, 4 + dy : 12 + dy, 4 + dx : 12 + dx]).abs().max()
            for dy in offsets
            for dx in offsets
        ]
        assert min(differences) < 1e-3


@pytest.mark.parametrize(("height", "width"), [(24, 24), (16, 32)])
def test_a_quarter_turn_keeps_lengths_where_the_image_is_not_square(height, width):
    # A jitter of 90 degrees rotates by at most 90; a disc must stay a disc under any rotation.
    ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    radius = ((ys - (height - 1) / 2) ** 2 + (xs - (width - 1) / 2) ** 2).sqrt()
    disc = torch.where(radius < 6, 255, 0).to(torch.uint8).expand(6, 3, -1, -1)
    result = augment(disc, Jitter(rotation_degrees=90), generator(2), **PLAIN)
    assert (result[:, :, radius < 4.5] > 0.99).all()
    assert (result[:, :, (radius > 7.5) & (radius < min(height, width) / 2)] < 0.01).all()


def lower_left_corner(count):
    """An L, bright along the left and the bottom. If mirrored, its right side would be bright."""
    pixels = torch.zeros((count, 3, 24, 24), dtype=torch.uint8)
    pixels[:, :, 4:20, 4:9] = 255
    pixels[:, :, 15:20, 4:20] = 255
    return pixels


def handedness(images):
    """Positive if the centre of mass is left of the middle, as for the L; negative for its mirror image."""
    grey = images.mean(dim=1)
    places = torch.arange(24.0) - 11.5
    mass = grey.sum(dim=(1, 2))
    return -((grey * places.view(1, 1, -1)).sum(dim=(1, 2)) / mass)


def test_signs_are_never_mirrored_and_objects_are():
    pixels = lower_left_corner(512)
    shiftless = {"shift": 0.0}
    signs = Jitter(**{**vars(KINDS["signs"]), **shiftless})
    objects = Jitter(**{**vars(KINDS["objects"]), **shiftless})
    assert (handedness(augment(pixels, signs, generator(3), **PLAIN)) > 0).all()
    mirrored = (handedness(augment(pixels, objects, generator(3), **PLAIN)) < 0).float().mean()
    assert 0.4 < mirrored < 0.6
    assert not KINDS["signs"].mirror
    assert not KINDS["rigid"].mirror


def test_mirroring_is_exact():
    pixels = noise(count=16)
    result = augment(pixels, Jitter(mirror=True), generator(4), **PLAIN)
    original = pixels.float() / 255
    same = [torch.allclose(r, o, atol=1e-4) for r, o in zip(result, original, strict=True)]
    flipped = [torch.allclose(r, o.flip(-1), atol=1e-4) for r, o in zip(result, original, strict=True)]
    assert all(s != f for s, f in zip(same, flipped, strict=True))
    assert any(same)
    assert any(flipped)


@given(seed=st.integers(0, 2**32), kind=st.sampled_from(sorted(KINDS)))
@settings(max_examples=25, deadline=None)
def test_the_generator_decides_and_values_stay_in_range(seed, kind):
    pixels = noise(count=3)
    first = augment(pixels, KINDS[kind], generator(seed), **PLAIN)
    assert torch.equal(first, augment(pixels, KINDS[kind], generator(seed), **PLAIN))
    assert first.shape == pixels.shape
    assert first.min() >= -1e-5
    assert first.max() <= 1 + 1e-5


def test_each_image_has_its_own_parameters():
    pixels = noise(count=1).expand(6, -1, -1, -1)
    result = augment(pixels, KINDS["signs"], generator(), **PLAIN)
    assert all(not torch.equal(result[0], other) for other in result[1:])


def test_light_changes_brightness_and_contrast_only():
    # Grey levels in the middle of the range are not clamped, so the change is linear.
    pixels = torch.arange(100, 148, dtype=torch.uint8).repeat(3).view(1, 3, 6, 8)
    result = augment(pixels, Jitter(brightness=0.1, contrast=0.2), generator(5), **PLAIN)
    slopes = result.flatten(2).diff() * 255
    torch.testing.assert_close(slopes, slopes[0, 0, 0].expand_as(slopes), atol=1e-3, rtol=0)
    assert 1 / 1.2 - 1e-3 <= float(slopes[0, 0, 0]) <= 1.2 + 1e-3
    assert abs(float(result.mean() - pixels.float().mean() / 255)) <= 0.1 + 1e-6


def test_an_erased_rectangle_has_the_mean_colour_and_nothing_else_changes():
    pixels = torch.randint(100, 256, (400, 3, 20, 30), dtype=torch.uint8)
    plain = augment(pixels, Jitter(), generator(), (0.1, 0.1, 0.1), (1.0, 1.0, 1.0))
    found = augment(pixels, Jitter(erase=0.5), generator(7), (0.1, 0.1, 0.1), (1.0, 1.0, 1.0))
    gone = found != plain
    assert (found[gone] == 0).all()
    assert (gone == gone[:, :1]).all()  # in all channels
    touched = gone.flatten(1).any(1)
    assert 0.4 < touched.float().mean() < 0.6
    for image in gone[touched, 0]:
        rows, columns = image.any(1), image.any(0)
        assert image.sum() == rows.sum() * columns.sum()  # a rectangle without holes
    shares = gone[touched, 0].flatten(1).float().mean(1)
    assert shares.min() > 0.01
    assert 0.25 < shares.max() < 0.4


def test_saturation_keeps_grey_and_brightness():
    """The colours change around the same luma, computed by hand for one colour; grey images stay the same."""
    pixels = torch.zeros(64, 3, 2, 2, dtype=torch.uint8)
    pixels[:, 0] = 120
    pixels[:, 1] = 90
    pixels[:, 2] = 100
    pixels[:, :, 0, 0] = 77
    found = augment(pixels, Jitter(saturation=0.3), generator(8), **PLAIN)
    luma = (found * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1)
    assert torch.allclose(found[:, :, 0, 0], torch.tensor(77 / 255))
    assert torch.allclose(luma[:, 1, 1], torch.tensor((0.299 * 120 + 0.587 * 90 + 0.114 * 100) / 255), atol=1e-5)
    spread = (found[:, 0] - found[:, 1])[:, 1, 1] / (30 / 255)
    assert 1 / 1.3 - 1e-4 <= spread.min() < 0.85
    assert 1.2 < spread.max() <= 1.3 + 1e-4
    grey = torch.full((4, 1, 2, 2), 50, dtype=torch.uint8)
    assert torch.equal(
        augment(grey, Jitter(saturation=0.3), generator(), (0.0,), (1.0,)),
        augment(grey, Jitter(), generator(), (0.0,), (1.0,)),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_images_at_a_time_vary_as_all_at_once_do(kind, monkeypatch):
    pixels, jitter = noise(count=11), replace(KINDS[kind], erase=0.5)
    at_once = augment(pixels, jitter, generator(), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    monkeypatch.setattr(module, "CACHED_BYTES", 4 * 3 * 12 * 12 * 3)  # three images
    assert torch.equal(augment(pixels, jitter, generator(), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)), at_once)
