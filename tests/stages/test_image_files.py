"""Test images that are also training or validation images are counted."""

from shutil import copy

import pytest

from catro_deploy.data import open_dataset
from catro_deploy.files import write_text
from catro_deploy.progress import Silent
from catro_deploy.settings import DataSettings
from catro_deploy.stages.image_files import copies_warning
from tests.stages.colours import dataset


@pytest.mark.parametrize(
    ("wanted", "share"), [((0, 1, 2), "3 of 36 (8.33%)"), ((0, 2), "3 of 24 (12.50%)"), ((1, 2), None)]
)
def test_those_of_the_wanted_classes_are_counted(tmp_path, wanted, share):
    for split in ("train", "test", "val"):
        for name in ("few", "many", "most"):
            for number in range(12):
                write_text(tmp_path / split / name / f"{number}.png", f"{split} {name} {number}")
    for number, other in enumerate(("train", "train", "val")):
        copy(tmp_path / other / "few" / "0.png", tmp_path / "test" / "few" / f"{number}.png")
    found = copies_warning(open_dataset(DataSettings(name="imagefolder", root=tmp_path), (8, 8), 3), wanted, Silent())
    if share is None:
        assert found == ""
    else:
        assert found.startswith(f"Test images that are also training or validation images: {share}, such as ")
        assert f"{tmp_path}/test/few/0.png, which has the content of {tmp_path}/train/few/0.png" in found


def test_images_that_are_not_in_files_are_not_compared():
    assert copies_warning(dataset(DataSettings(), (8, 8), 3), (0, 1, 2), Silent()) == ""
