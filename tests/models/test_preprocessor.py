"""Images prepared in the same way as by the image processors of transformers."""

import numpy as np
import pytest
from PIL import Image

from catro_deploy.data.form import ImageForm
from catro_deploy.errors import ModelError
from catro_deploy.models.preprocessor import preparation, prepared_by_library
from tests.models.huggingface import PREPROCESSOR, write_json

transformers = pytest.importorskip("transformers")
FILE = "preprocessor_config.json"
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CASES = {
    "exact": ("ViTImageProcessor", {"size": {"height": 48, "width": 64}, "resample": 3}),
    "nearest": ("ViTImageProcessor", {"size": {"height": 48, "width": 48}, "resample": 0}),
    "lanczos": ("ViTImageProcessor", {"size": {"height": 48, "width": 48}, "resample": 1}),
    "scaled to -1..1": (
        "ViTImageProcessor",
        {"rescale_factor": 1 / 127.5, "image_mean": [1] * 3, "image_std": [1] * 3},
    ),
    "not normalised": ("ViTImageProcessor", {"do_normalize": False}),
    "neither": ("ViTImageProcessor", {"do_normalize": False, "do_rescale": False}),
    "convnext": ("ConvNextImageProcessor", {"size": {"shortest_edge": 56}, "crop_pct": 0.875}),
    "convnext, old": ("ConvNextFeatureExtractor", {"size": 56, "crop_pct": 0.875}),
    "convnext, large": ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}),
    "efficientnet": ("EfficientNetImageProcessor", {"size": {"height": 60, "width": 60}}),
    "efficientnet, -1": (
        "EfficientNetImageProcessor",
        {"size": {"height": 60, "width": 60}, "rescale_factor": 1 / 127.5, "rescale_offset": True},
    ),
    "efficientnet, features": ("EfficientNetImageProcessor", {"include_top": False}),
    "efficientnet, cut": (
        "EfficientNetImageProcessor",
        {"size": {"height": 60, "width": 60}, "do_center_crop": True, "crop_size": {"height": 40, "width": 48}},
    ),
    "bit": ("BitImageProcessor", {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}}),
    "mobilenet": (
        "MobileNetV2ImageProcessor",
        {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}},
    ),
    "poolformer": (
        "PoolFormerImageProcessor",
        {"size": {"shortest_edge": 56}, "crop_pct": 0.875, "crop_size": {"height": 56, "width": 56}},
    ),
}


def photograph(height, width, seed=0):
    """Noise over a gradient, on which every resizing method gives a different result."""
    noise = np.random.default_rng(seed).integers(0, 128, (height, width, 3))
    slope = np.linspace(0, 127, width, dtype=np.int64)[None, :, None]
    return Image.fromarray((noise + slope).astype(np.uint8))


def folder_with(folder, kind, **values):
    defaults = {"image_mean": MEAN, "image_std": STD, "image_processor_type": kind}
    if kind.endswith("FeatureExtractor"):
        defaults = {"image_mean": MEAN, "image_std": STD, "feature_extractor_type": kind}
    write_json(folder / FILE, defaults | values)
    return folder


def prepared(folder, image):
    """Return (pixels / 255 - mean) / std of the resized image, as in the pipeline, and the smallest step of a level."""
    found = preparation(folder)
    form = ImageForm(found.size, 3, found.resize, found.interpolation)
    pixels = np.asarray(form.applied(image), dtype=np.float64).transpose(2, 0, 1) / 255
    mean, std = (np.reshape(values, (3, 1, 1)) for values in (found.mean, found.std))
    return (pixels - mean) / std, np.min(1 / (255 * std))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sides", [(90, 120), (120, 90), (70, 70)])  # even margins; odd ones are tested below
def test_every_pixel_equals_the_librarys(tmp_path, case, sides):
    kind, values = CASES[case]
    folder, image = folder_with(tmp_path, kind, **values), photograph(*sides)
    ours, level = prepared(folder, image)
    theirs = prepared_by_library(folder, image)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=1e-3 * level, rtol=1e-5)


def test_its_other_backend_differs_by_rounding_at_most(tmp_path):
    folder, image = folder_with(tmp_path, "ViTImageProcessor", **CASES["exact"][1]), photograph(90, 120)
    fast = transformers.AutoImageProcessor.from_pretrained(str(folder), backend="torchvision")
    theirs = np.asarray(fast(image, return_tensors="np")["pixel_values"][0])
    ours, _ = prepared(folder, image)
    assert np.abs(ours - theirs).max() <= 1.01 / 255 / min(STD)


def test_an_odd_margin_may_be_a_pixel_to_the_side(tmp_path):
    # The margin is 67 - 56 = 11: the library crops from half of it rounded down, 5, torchvision from round(5.5) = 6.
    folder = folder_with(
        tmp_path, "BitImageProcessor", size={"shortest_edge": 67}, crop_size={"height": 56, "width": 56}
    )
    image = photograph(67, 67)
    ours, _ = prepared(folder, image)
    theirs = prepared_by_library(folder, image)
    np.testing.assert_allclose(ours[:, :-1, :-1], theirs[:, 1:, 1:], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("ViTImageProcessor", {"do_resize": False}, "not resize"),
        ("BitImageProcessor", {"size": {"shortest_edge": 64, "longest_edge": 80}}, "not resize"),
        ("BitImageProcessor", {"size": {"shortest_edge": 64}, "do_center_crop": False}, "centre crop"),
        ("BitImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": {"height": 64, "width": 64}}, "64x64"),
        ("ViTImageProcessor", {"resample": 5}, "method 5"),
        ("NoSuchImageProcessor", {}, "cannot load"),
    ],
)
def test_what_settings_cannot_say_is_refused(tmp_path, kind, values, said):
    with pytest.raises(ModelError, match=said) as refused:
        preparation(folder_with(tmp_path, kind, **values))
    assert "ViTImageProcessor" in refused.value.hint


def test_a_folder_without_image_processor(tmp_path):
    with pytest.raises(ModelError, match=r"preprocessor_config\.json"):
        preparation(tmp_path)


def test_no_code_of_the_folder_runs(tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    write_json(tmp_path / FILE, PREPROCESSOR | {"auto_map": {"AutoImageProcessor": "evil.Processor"}})
    assert preparation(tmp_path).size == (32, 32)
    assert not (tmp_path / "ran").exists()
