import threading

import numpy as np
import pytest
import torch
from PIL import Image

from catro_deploy.data import files
from catro_deploy.data.decoding import decode
from catro_deploy.data.files import FileSplit, file_splits
from catro_deploy.data.form import ImageForm
from catro_deploy.errors import DataError

RED, GREY_OF_RED = (255, 0, 0), 76  # 0.299 * 255, ITU-R 601


def save(image, path, **options):
    image.save(path, **options)
    return path


def flat(mode, colour):
    return Image.new(mode, (8, 8), colour)


def red_palette(transparency=None):
    image = flat("P", 1)
    image.putpalette([0, 0, 0, *RED])
    if transparency is not None:
        image.info["transparency"] = transparency
    return image


@pytest.mark.parametrize("suffix", ["png", "ppm", "bmp", "tif", "webp", "jpg"])
def test_formats_are_read(tmp_path, suffix):
    path = save(flat("RGB", (200, 100, 50)), tmp_path / f"image.{suffix}")
    pixels = decode(path, ImageForm((8, 8), 3))
    assert pixels.shape == (3, 8, 8)
    assert np.abs(pixels[:, 4, 4].astype(int) - (200, 100, 50)).max() <= (
        0 if suffix in ("png", "ppm", "bmp", "tif") else 6
    )


@pytest.mark.parametrize(
    ("image", "suffix", "rgb", "grey"),
    [
        (flat("RGB", RED), "png", RED, GREY_OF_RED),
        (flat("RGBA", (*RED, 255)), "png", RED, GREY_OF_RED),
        (flat("RGBA", (*RED, 10)), "png", RED, GREY_OF_RED),
        (flat("L", 77), "png", (77,) * 3, 77),
        (flat("L", 77), "pgm", (77,) * 3, 77),
        (flat("LA", (77, 255)), "png", (77,) * 3, 77),
        (flat("1", 1), "png", (255,) * 3, 255),
        (red_palette(), "png", RED, GREY_OF_RED),
        (red_palette(b"\xff\x80"), "png", RED, GREY_OF_RED),
        (flat("I;16", 257 * 77), "png", (77,) * 3, 77),
        (flat("I;16", 65535), "tif", (255,) * 3, 255),
        (flat("I;16", 128), "tif", (0,) * 3, 0),
        (flat("I", 257 * 77), "pgm", (77,) * 3, 77),
        (flat("CMYK", (0, 255, 255, 0)), "tif", RED, GREY_OF_RED),
    ],
)
def test_modes_become_rgb_and_grey(tmp_path, image, suffix, rgb, grey):
    path = save(image, tmp_path / f"image.{suffix}")
    coloured, plain = decode(path, ImageForm((8, 8), 3)), decode(path, ImageForm((8, 8), 1))
    assert coloured.dtype == plain.dtype == np.uint8
    assert (coloured == np.array(rgb)[:, None, None]).all()
    assert plain.shape == (1, 8, 8)
    assert (plain == grey).all()


def test_resizing_averages_what_it_shrinks(tmp_path):
    stripes = np.zeros((64, 128), np.uint8)
    stripes[:, ::2] = 200
    path = save(Image.fromarray(stripes), tmp_path / "stripes.png")
    pixels = decode(path, ImageForm((8, 16), 1))
    assert pixels.shape == (1, 8, 16)
    assert np.abs(pixels.astype(int) - 100).max() <= 10  # without antialiasing it would be 0 or 200


def test_float_pixels_are_refused(tmp_path):
    path = save(flat("F", 0.5), tmp_path / "depth.tif")
    with pytest.raises(DataError, match="floating-point"):
        decode(path, ImageForm((8, 8), 3))


def noise_image(path):
    return save(Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)), path)


@pytest.mark.parametrize("suffix", ["png", "ppm", "bmp", "tif", "webp", "jpg"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9])
def test_a_truncated_image_is_named(tmp_path, suffix, share):
    path = noise_image(tmp_path / f"broken.{suffix}")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DataError) as caught:
        decode(path, ImageForm((8, 8), 3))
    assert str(path) in caught.value.problem
    assert "truncated" in caught.value.hint


def test_a_missing_image_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.png.* does not exist"):
        decode(tmp_path / "gone.png", ImageForm((8, 8), 3))


def test_a_text_is_no_image(tmp_path):
    path = tmp_path / "text.png"
    path.write_text("this is no image")
    with pytest.raises(DataError, match=r"(?s)text\.png.*skip_corrupt"):
        decode(path, ImageForm((8, 8), 3))


def test_the_guard_against_decompression_bombs_stands(tmp_path):
    path = tmp_path / "bomb.ppm"
    path.write_bytes(b"P6 60000 60000 255\n" + b"\0" * 64)
    with pytest.raises(DataError, match=r"bomb\.ppm.* too large"):
        decode(path, ImageForm((8, 8), 3))


@pytest.fixture
def grey_files(tmp_path):
    """Sixty files; all pixels of file i have the value i."""
    return [save(flat("L", i), tmp_path / f"{i:02d}.png") for i in range(60)]


@pytest.mark.parametrize("remember", [True, False])
def test_images_come_in_the_order_asked_for(grey_files, remember):
    split = FileSplit(grey_files, np.arange(60), ImageForm((4, 4), 1), remember=remember)
    for wanted in ([5, 3, 5], np.arange(59, -1, -1), []):
        images = split.images(wanted)
        assert images.dtype == torch.uint8
        assert images.shape == (len(wanted), 1, 4, 4)
        assert images[:, 0, 0, 0].tolist() == list(wanted)


def test_remembered_images_need_no_file(grey_files):
    split = FileSplit(grey_files, np.arange(60), ImageForm((8, 8), 1), remember=True)
    split.images([7])
    for path in grey_files:
        path.unlink()
    assert split.images([7, 7])[1, 0, 0, 0] == 7
    with pytest.raises(DataError, match=r"08\.png"):
        split.images([7, 8])


def test_what_is_given_out_is_a_copy(grey_files):
    split = FileSplit(grey_files, np.arange(60), ImageForm((8, 8), 1), remember=True)
    split.images([7]).zero_()
    assert split.images([7]).max() == 7


def test_a_dataset_above_the_limit_is_decoded_each_time(grey_files, monkeypatch):
    monkeypatch.setattr(files, "REMEMBERED_BYTES", 60 * 8 * 8)
    for extra, expected in ((0, True), (1, False)):
        parts = [
            (grey_files[:30], np.arange(30)),
            (grey_files[30:] + grey_files[:extra], np.arange(30 + extra)),
        ]
        splits = file_splits(parts, ImageForm((8, 8), 1))
        assert [len(split.paths) for split in splits] == [30, 30 + extra]
        splits[0].images(range(30))
        held = [path.rename(path.with_suffix(".away")) for path in grey_files]
        if expected:
            assert splits[0].images([3]).max() == 3
        else:
            with pytest.raises(DataError):
                splits[0].images([3])
        for path in held:
            path.rename(path.with_suffix(".png"))


def test_threads_may_share_a_split(grey_files):
    split = FileSplit(grey_files, np.arange(60), ImageForm((8, 8), 1), remember=True)
    wrong = []

    def look(seed):
        for _ in range(20):
            wanted = np.random.default_rng(seed).integers(0, 60, 40)
            if split.images(wanted)[:, 0, 0, 0].tolist() != wanted.tolist():
                wrong.append(seed)

    threads = [threading.Thread(target=look, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
