import os

import numpy as np
import pytest
import torch
from PIL import Image

from catro_deploy.data import open_dataset, signs
from catro_deploy.data.signs import draw_split
from catro_deploy.data.signs_drawing import CLASSES, GROUPS, draw_face
from catro_deploy.settings import DataSettings

SIZE = (32, 32)


@pytest.fixture
def few(monkeypatch):
    """Draw only a few images, so that a test is fast."""
    monkeypatch.setattr(signs, "IMAGES_PER_CLASS", {"train": 4, "test": 2})


def opened(root, size=SIZE, channels=3, **settings):
    return open_dataset(DataSettings(name="signs", root=root, validation=0.25, **settings), size, channels)


def pixels(dataset):
    return [split.images(range(len(split.labels))) for split in (dataset.train, dataset.validation, dataset.test)]


def cache(root):
    return next((root / "signs").iterdir())


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(pixels(one), pixels(other), strict=True))


def test_classes_and_groups():
    assert len(set(CLASSES)) == 16
    assert [CLASSES[i] for i in GROUPS["speed_limits"]] == [
        f"speed_limit_{limit}" for limit in (20, 30, 50, 60, 70, 80, 100, 120)
    ]
    assert [CLASSES[i] for i in GROUPS["direction_signs"]] == [
        "turn_left",
        "turn_right",
        "ahead_only",
        "keep_right",
    ]


def test_an_image_depends_on_seed_split_and_number_alone():
    images = draw_split("train", 40, SIZE, seed=3)
    assert (draw_split("train", 24, SIZE, seed=3) == images[:24]).all()
    for other in (draw_split("test", 40, SIZE, seed=3), draw_split("train", 40, SIZE, seed=4)):
        assert all((a != b).any() for a, b in zip(images, other, strict=True))
    assert len(np.unique(images.reshape(40, -1), axis=0)) == 40


def test_images_vary_in_light_and_are_not_empty():
    images = draw_split("train", 160, SIZE, seed=0).astype(float)
    means, spreads = images.mean((1, 2, 3)), images.std((1, 2, 3))
    assert means.min() < 50
    assert means.max() > 130
    assert spreads.min() > 4
    assert np.median(spreads) > 25


def test_faces_differ_and_turns_are_mirrored():
    faces = {name: np.asarray(draw_face(name, 64)).astype(int) for name in CLASSES}
    assert all(face.shape == (64, 64, 4) and face[0, 0, 3] == 0 and face[32, 32, 3] == 255 for face in faces.values())
    names = list(faces)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert np.abs(faces[one] - faces[other]).mean() > 2, (one, other)
    left, right = faces["turn_left"], faces["turn_right"]
    assert np.abs(left[:, ::-1] - right).mean() < np.abs(left - right).mean() / 3


@pytest.mark.parametrize(("size", "channels"), [((32, 32), 3), ((32, 32), 1), ((48, 24), 3), ((96, 96), 3)])
def test_splits_are_balanced_at_any_size(few, tmp_path, size, channels):
    dataset = opened(tmp_path, size, channels)
    counts = [np.bincount(split.labels).tolist() for split in (dataset.train, dataset.validation, dataset.test)]
    assert counts == [[3] * 16, [1] * 16, [2] * 16]
    assert [tuple(part.shape) for part in pixels(dataset)] == [(n, channels, *size) for n in (48, 16, 32)]
    assert all(part.dtype == torch.uint8 for part in pixels(dataset))


def test_grey_is_the_luma_of_the_colours(few, tmp_path):
    coloured, grey = opened(tmp_path).test.images([5]), opened(tmp_path, channels=1).test.images([5])
    expected = np.asarray(Image.fromarray(coloured[0].numpy().transpose(1, 2, 0)).convert("L"))
    assert (grey[0, 0].numpy() == expected).all()


def test_what_was_drawn_is_read_again(few, tmp_path, monkeypatch):
    first = opened(tmp_path)
    monkeypatch.setattr(signs, "photograph", None)  # drawing fails from here on
    assert same(first, opened(tmp_path))


def put_pipe(path):
    path.unlink()
    os.mkfifo(path)


def write_plain_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-2000]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:50_000] + b"\xff" * 64 + path.read_bytes()[50_064:]),
        lambda path: path.write_text("no archive"),
        lambda path: np.savez(path, key=np.array("version 0")),
        lambda path: np.savez(path, other=np.zeros(3)),
        write_plain_array,
        put_pipe,
    ],
)
@pytest.mark.timeout(60)
def test_a_damaged_file_is_drawn_again(few, tmp_path, spoil):
    first = opened(tmp_path)
    spoil(cache(tmp_path))
    assert same(first, opened(tmp_path))
    with np.load(cache(tmp_path)) as file:
        assert file["test"].shape == (32, 32, 32, 3)


def test_another_seed_size_or_version_is_drawn_again(few, tmp_path, monkeypatch):
    first = opened(tmp_path)
    assert not same(first, opened(tmp_path, seed=1))
    assert pixels(opened(tmp_path, (16, 16)))[0].shape[2:] == (16, 16)
    assert same(first, opened(tmp_path))
    monkeypatch.setattr(signs, "VERSION", -1)
    opened(tmp_path)
    with np.load(tmp_path / "signs/32x32_seed0.npz") as file:
        assert "version -1" in str(file["key"])


def test_a_folder_that_cannot_be_written_costs_only_time(few, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert same(opened(tmp_path / "file"), opened(tmp_path / "folder"))
