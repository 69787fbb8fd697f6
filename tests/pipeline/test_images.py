"""Stages run again if the files of their images have changed."""

from pathlib import Path

import pytest
from PIL import Image

from catro_deploy.errors import DataError
from catro_deploy.files import write_text
from catro_deploy.stages import image_stamps
from tests.pipeline.driving import ALL, go


@pytest.fixture
def folder(tmp_path):
    """Files of two classes in train/ and test/; stages without computations do not decode them."""
    for split, count in (("train", 3), ("test", 2)):
        for name in ("cat", "dog"):
            for number in range(count):
                write_text(tmp_path / "files" / split / name / f"{number}.png", f"{split} {name} {number}")
    return tmp_path / "files"


def test_changed_images_run_again_what_depends_on_them(run, folder):
    data = {"data": {"name": "imagefolder", "root": folder}}
    assert go(run, **data) == list(ALL)
    assert go(run, **data) == []
    write_text(folder / "test" / "cat" / "1.png", "of another size")
    assert go(run, **data) == ["verify", "report"]
    (folder / "test" / "cat" / "1.png").rename(folder / "test" / "dog" / "7.png")  # another label
    assert go(run, **data) == ["verify", "report"]
    write_text(folder / "train" / "dog" / "3.png", "one more")
    assert go(run, **data)[:2] == ["prune", "finetune"]
    assert go(run, **data) == []


def test_a_relative_path_names_the_same_images(run, folder, monkeypatch):
    model = {"checkpoint": Path.cwd() / "baseline.safetensors"}
    go(run, model=model, data={"name": "imagefolder", "root": folder})
    for place, root in ((folder.parent, "files"), (folder, ".")):
        monkeypatch.chdir(place)
        assert go(run, model=model, data={"name": "imagefolder", "root": root}) == []


def test_sizes_of_very_many_files_do_not_count(run, folder, monkeypatch):
    monkeypatch.setattr(image_stamps, "MOST_SIZED", 5)  # test/ has 4 files
    data = {"data": {"name": "imagefolder", "root": folder}}
    go(run, **data)
    write_text(folder / "test" / "cat" / "1.png", "of another size")
    assert go(run, **data) == ["verify", "report"]
    monkeypatch.setattr(image_stamps, "MOST_SIZED", 3)
    go(run, **data)
    write_text(folder / "test" / "cat" / "1.png", "of one more size")
    assert go(run, **data) == []
    (folder / "test" / "cat" / "1.png").rename(folder / "test" / "cat" / "2.png")
    assert go(run, **data) == ["verify", "report"]


def test_skipping_a_corrupt_test_image_only_verifies_again(run, folder):
    for path in folder.glob("*/*/*.png"):
        Image.new("L", (4, 4)).save(path)
    data = {"name": "imagefolder", "root": folder}
    go(run, data=data)
    assert go(run, data=data | {"skip_corrupt": True}) == []
    write_text(folder / "test" / "dog" / "0.png", "no image")
    assert go(run, data=data | {"skip_corrupt": True}) == ["verify", "report"]
    write_text(folder / "train" / "dog" / "0.png", "no image")
    assert go(run, data=data | {"skip_corrupt": True})[:2] == ["prune", "finetune"]


def test_missing_images_replace_no_results(run, folder):
    data = {"data": {"name": "imagefolder", "root": folder}}
    go(run, **data)
    before = run.finished()
    (folder / "train").rename(folder / "moved")
    with pytest.raises(DataError, match=r"There is no train/"):
        go(run, **data)
    assert run.finished() == before
