"""Images resized to the input size equal the output of torchvision's and timm's own transforms, pixel by pixel."""

import numpy as np
import pytest
from PIL import Image
from timm.data import create_transform
from torchvision.models import get_model_weights
from torchvision.transforms.functional import center_crop, pil_to_tensor, resize

from catro_deploy.data.decoding import decode
from catro_deploy.data.form import ImageForm
from catro_deploy.models.pretrained import pretrained

SIZES = [(300, 200), (201, 333), (224, 224), (500, 260)]


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def photo(request, tmp_path):
    width, height = request.param
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path)
    return path


def form_of(name, weights):
    found = pretrained(name, weights)
    return ImageForm(found.size, 3, found.resize, found.interpolation)


@pytest.mark.parametrize(
    ("architecture", "weights"),
    [("resnet50", "IMAGENET1K_V1"), ("resnet50", "IMAGENET1K_V2"), ("efficientnet_b0", "IMAGENET1K_V1")],
)
def test_as_torchvision(photo, architecture, weights):
    transform = get_model_weights(architecture)[weights].transforms()
    pixels = decode(photo, form_of(f"torchvision:{architecture}", weights))
    expected = transform(Image.open(photo))
    mean, std = (np.array(values, np.float32).reshape(3, 1, 1) for values in (transform.mean, transform.std))
    np.testing.assert_array_equal((pixels.astype(np.float32) / np.float32(255) - mean) / std, expected.numpy())


@pytest.mark.parametrize(
    "name", ["resnet50.a1_in1k", "mobilenetv3_small_100.lamb_in1k", "convnext_tiny.in12k_ft_in1k_384"]
)
def test_as_timm(photo, name):
    import timm

    config = timm.models.get_pretrained_cfg(name)
    transform = create_transform(
        config.input_size, interpolation=config.interpolation, crop_pct=config.crop_pct, crop_mode=config.crop_mode,
        normalize=False,
    )  # fmt: skip
    expected = transform(Image.open(photo))
    np.testing.assert_array_equal(decode(photo, form_of(f"timm:{name}", "DEFAULT")), expected.numpy())


def test_without_a_crop_the_whole_image_is_squashed(photo):
    expected = Image.open(photo).resize((64, 48), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(decode(photo, ImageForm((48, 64), 3)), pil_to_tensor(expected).numpy())


@pytest.mark.parametrize("size", [(64, 96), (61, 64), (64, 200)])
def test_crops_that_are_no_squares_as_torchvision(photo, size):
    expected = center_crop(resize(Image.open(photo), [64]), list(size))
    np.testing.assert_array_equal(decode(photo, ImageForm(size, 3, resize=64)), pil_to_tensor(expected).numpy())


def test_both_sides_may_be_given_and_the_centre_is_cut_out(tmp_path):
    Image.fromarray(np.arange(36, dtype=np.uint8).reshape(6, 6)).save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png", ImageForm((2, 4), 1, resize=(6, 6)))
    np.testing.assert_array_equal(pixels[0], [[13, 14, 15, 16], [19, 20, 21, 22]])
