import pytest
from PIL import Image

from catro_deploy.data import open_dataset, sizes
from catro_deploy.data.sizes import image_sizes
from catro_deploy.records import ImageSizes
from catro_deploy.settings import DataSettings


@pytest.fixture
def write(tmp_path):
    """Write images of the given (width, height) to train/ of one class; the other images are 8x8."""

    def write(*of_a):
        for split in ("train", "test"):
            for name in ("a", "b"):
                folder = tmp_path / split / name
                folder.mkdir(parents=True)
                for number in range(3):
                    Image.new("RGB", (8, 8)).save(folder / f"{number}.png")
        for number, size in enumerate(of_a):
            Image.new("RGB", size).save(tmp_path / "train" / "a" / f"new{number}.png")
        return open_dataset(DataSettings(name="imagefolder", root=tmp_path), (4, 4), 3)

    return write


def test_files_of_one_size(write):
    found = image_sizes(write())
    assert found == ImageSizes(files=12, looked_at=12, different=1, least=(8, 8), most=(8, 8), square=True)
    assert found.side == 8


def test_files_of_several_sizes(write):
    found = image_sizes(write((20, 10), (6, 30)))
    assert found == ImageSizes(files=14, looked_at=14, different=3, least=(6, 8), most=(20, 30), square=False)
    assert found.side is None


def test_a_file_that_is_no_image_is_left_to_the_decoder(write, tmp_path):
    dataset = write()
    (tmp_path / "test" / "a" / "0.png").write_bytes(b"no image")
    assert image_sizes(dataset).looked_at == 11


def test_of_many_files_evenly_spaced_ones_are_read(write, monkeypatch):
    monkeypatch.setattr(sizes, "MOST_HEADERS", 5)
    found = image_sizes(write())
    assert (found.files, found.looked_at) == (12, 5)


def test_images_in_memory_have_no_files():
    dataset = open_dataset(DataSettings(name="tests.tiny:dataset"), (16, 16), 3)
    assert image_sizes(dataset) is None


@pytest.mark.parametrize(
    ("least", "most", "square", "changes"),
    [
        ((32, 32), (32, 32), True, ()),
        ((64, 64), (64, 64), True, ("shrunk",)),
        ((16, 16), (16, 16), True, ("enlarged",)),
        ((16, 16), (64, 64), True, ("enlarged", "shrunk")),
        ((64, 48), (64, 48), False, ("shrunk", "squeezed")),
        ((32, 24), (32, 24), False, ("enlarged", "squeezed")),
    ],
)
def test_what_resizing_to_32_does(least, most, square, changes):
    different = 1 if least == most else 2
    assert ImageSizes(9, 9, different, least, most, square).changes(32, 32) == changes


def test_one_shape_that_fits_an_oblong_input_is_not_squeezed():
    assert ImageSizes(9, 9, 1, (64, 48), (64, 48), False).changes(32, 24) == ("shrunk",)
    assert ImageSizes(9, 9, 1, (64, 64), (64, 64), True).changes(32, 24) == ("shrunk", "squeezed")
