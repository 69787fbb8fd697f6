import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from catro_deploy.data import open_dataset
from catro_deploy.errors import DataError
from catro_deploy.settings import DataSettings

SHADES = {"cat": 50, "dog": 100, "owl": 150}


def fill(folder, images, shades=SHADES):
    """Write ``images`` grey images in the class's shade to each class folder, plus files that are not images."""
    for name, shade in shades.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "notes.txt").write_text("no image")
        (folder / name / "._hidden.png").write_text("no image")
        for i in range(images):
            Image.new("L", (8, 8), shade).save(folder / name / f"{i}.{'PNG' if i % 2 else 'jpg'}")


def opened(root, **settings):
    return open_dataset(DataSettings(name="imagefolder", root=root, **settings), (8, 8), 3)


def shades_fit(split):
    images = split.images(range(len(split.labels)))
    expected = np.array(list(SHADES.values()))[split.labels]
    return (np.abs(images.numpy().mean((1, 2, 3)) - expected) <= 2).all()


@pytest.mark.parametrize("held", ["val", "test"])
def test_one_held_folder_is_the_test_set(tmp_path, held):
    fill(tmp_path / "train", 10)
    fill(tmp_path / held, 2)
    dataset = opened(tmp_path, validation=0.2)
    assert dataset.classes == ("cat", "dog", "owl")
    assert [np.bincount(split.labels).tolist() for split in (dataset.train, dataset.validation, dataset.test)] == [
        [8] * 3,
        [2] * 3,
        [2] * 3,
    ]
    assert not set(dataset.train.paths) & set(dataset.validation.paths)
    assert {path.parts[-3] for path in dataset.test.paths} == {held}
    assert all(shades_fit(split) for split in (dataset.train, dataset.validation, dataset.test))


def test_with_both_folders_each_is_what_it_is_called(tmp_path):
    fill(tmp_path / "train", 1)
    fill(tmp_path / "val", 2)
    fill(tmp_path / "test", 3)
    dataset = opened(tmp_path)
    for split, folder, count in (
        (dataset.train, "train", 1),
        (dataset.validation, "val", 2),
        (dataset.test, "test", 3),
    ):
        assert {path.parts[-3] for path in split.paths} == {folder}
        assert len(split.labels) == count * 3


def test_images_deeper_down_belong_to_the_class(tmp_path):
    fill(tmp_path / "train", 2)
    fill(tmp_path / "test", 1)
    (tmp_path / "train/owl/night").mkdir()
    Image.new("L", (8, 8), 150).save(tmp_path / "train/owl/night/deep.png")
    dataset = opened(tmp_path)
    assert len(dataset.train.labels) + len(dataset.validation.labels) == 7


def remove_images(folder):
    for path in [*folder.glob("*.PNG"), *folder.glob("*.jpg")]:
        path.unlink()


BREAKS = {
    "no root": (lambda root: shutil.rmtree(root), "train/, val/ or test/", "train/<class>"),
    "no train": (lambda root: shutil.rmtree(root / "train"), "no train/ ", "train/<class>"),
    "no test": (lambda root: shutil.rmtree(root / "test"), "test/.* val/", "train/<class>"),
    "no classes": (
        lambda root: [shutil.rmtree(root / "train" / name) for name in SHADES],
        r"/images/train\b",
        "folder",
    ),
    "no images": (lambda root: remove_images(root / "train/dog"), r"no images.*/train/dog\b", r"\.png"),
    "no test images": (lambda root: remove_images(root / "test/dog"), r"no images.*/test/dog\b", r"\.png"),
    "class only in test": (
        lambda root: (root / "test/owl").rename(root / "test/owls"),
        r"/test\b.*'owls'.*\btrain/",
        r"\bowl\b",
    ),
    "class only in train": (
        lambda root: shutil.rmtree(root / "test/owl"),
        r"/test\b.*'owl'.*\btrain/",
        r"\btrain/",
    ),
    "one image": (
        lambda root: (root / "train/cat/0.jpg").unlink(),
        r"/train/cat\b",
        "val/ and test/",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_missing_is_named(tmp_path, name):
    spoil, problem, hint = BREAKS[name]
    root = tmp_path / "images"
    fill(root / "train", 2)
    fill(root / "test", 1)
    spoil(root)
    with pytest.raises(DataError) as caught:
        opened(root)
    assert re.search(problem, caught.value.problem)
    assert re.search(hint, caught.value.hint)


@pytest.mark.parametrize(
    ("folders", "other", "name"),
    [(("train", "test", "valid"), "valid", "val"), (("train", "testing"), "testing", "test")],
)
def test_a_split_under_another_usual_name_is_not_left_out(tmp_path, folders, other, name):
    for folder in folders:
        fill(tmp_path / folder, 2)
    with pytest.raises(DataError, match=f"folder {other}/; its name must be {name}/") as caught:
        opened(tmp_path)
    assert str(tmp_path / name) in caught.value.hint


def test_a_class_whose_name_is_not_utf8_is_rejected(tmp_path):
    for split in ("train", "test"):
        fill(tmp_path / split, 10)
        (tmp_path / split / "owl").rename(tmp_path / split / os.fsdecode(b"\xf6wl"))
    with pytest.raises(DataError, match=re.escape(r"train/\xf6wl is not valid UTF-8")):
        opened(tmp_path)
