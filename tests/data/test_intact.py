"""[data] skip_corrupt: files that cannot be decoded are left out and counted; by default they are an error."""

import os

import numpy as np
import pytest
from PIL import Image

from catro_deploy.data import intact, open_dataset
from catro_deploy.data.intact import require_intact
from catro_deploy.errors import DataError
from catro_deploy.settings import DataSettings
from catro_deploy.stages.sizes import announce_size
from tests.training.helpers import Recorder


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Twenty JPEGs of two classes for training, three of them corrupt in different ways; four for testing."""
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path / "cache"))
    for folder, count in (("train", 10), ("test", 2)):
        for shade, name in ((60, "cat"), (200, "dog")):
            (tmp_path / "root" / folder / name).mkdir(parents=True)
            for number in range(count):
                noise = np.random.default_rng(number).integers(0, 30, (24, 24, 3)) + shade
                path = tmp_path / "root" / folder / name / f"{number}.jpg"
                Image.fromarray(noise.astype(np.uint8)).save(path, quality=95)
    train = tmp_path / "root" / "train"
    whole = (train / "cat" / "3.jpg").read_bytes()
    (train / "cat" / "3.jpg").write_bytes(whole[: len(whole) * 3 // 4])
    (train / "dog" / "0.jpg").write_bytes(b"")
    (train / "dog" / "9.jpg").write_text("no image")
    return tmp_path / "root"


def opened(root, **settings):
    return open_dataset(DataSettings(name="imagefolder", root=root, **settings), (8, 8), 3)


CORRUPT = ["train/cat/3.jpg", "train/dog/0.jpg", "train/dog/9.jpg"]


def names(root, paths):
    return sorted(str(path.relative_to(root)) for path in paths)


def test_corrupt_files_are_left_out_of_every_split(root):
    dataset = opened(root, skip_corrupt=True, validation=0.3)
    assert names(root, dataset.skipped) == CORRUPT
    splits = (dataset.train, dataset.validation, dataset.test)
    assert sum(len(split.labels) for split in splits) == 24 - 3
    for split in splits:
        images = split.images(range(len(split.labels))).float().mean((1, 2, 3))
        assert ((images > 130).numpy() == (split.labels == 1)).all()


def test_by_default_a_corrupt_file_is_named(root):
    dataset = opened(root)
    assert dataset.skipped == ()
    with pytest.raises(DataError, match=r"cat/3\.jpg|dog/[09]\.jpg") as caught:
        [split.images(range(len(split.labels))) for split in (dataset.train, dataset.validation)]
    assert "skip_corrupt = true" in caught.value.hint


def test_files_are_tried_once_and_again_when_they_change(root, monkeypatch):
    tried, decode = [], intact.decode
    monkeypatch.setattr(intact, "decode", lambda path, framing: tried.append(path) or decode(path, framing))
    opened(root, skip_corrupt=True)
    assert len(tried) == 24
    tried.clear()
    assert names(root, opened(root, skip_corrupt=True).skipped) == CORRUPT
    assert tried == []
    mended, broken = root / "train" / "dog" / "0.jpg", root / "train" / "cat" / "1.jpg"
    before = broken.stat()
    mended.write_bytes((root / "train" / "dog" / "1.jpg").read_bytes())
    broken.write_bytes(bytes(before.st_size))  # same size and same modification time as before
    os.utime(broken, ns=(before.st_atime_ns, before.st_mtime_ns))
    found = opened(root, skip_corrupt=True)
    assert names(root, tried) == names(root, (mended, broken))
    assert names(root, found.skipped) == ["train/cat/1.jpg", "train/cat/3.jpg", "train/dog/9.jpg"]


def test_a_damaged_record_is_rewritten(root, tmp_path):
    opened(root, skip_corrupt=True)
    (kept,) = (tmp_path / "cache" / "decoded").iterdir()
    for content in (b"", b"PK", kept.read_bytes()[:100]):
        kept.write_bytes(content)
        assert names(root, opened(root, skip_corrupt=True).skipped) == CORRUPT


@pytest.mark.timeout(30)
def test_a_pipe_in_the_place_of_the_record_is_replaced(root, tmp_path):
    opened(root, skip_corrupt=True)
    (kept,) = (tmp_path / "cache" / "decoded").iterdir()
    kept.unlink()
    os.mkfifo(kept)
    assert names(root, opened(root, skip_corrupt=True).skipped) == CORRUPT
    assert kept.is_file()


def test_a_class_of_corrupt_files_only_is_an_error(root):
    for path in (root / "test" / "dog").iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"\b2 images\b.*test/dog/0\.jpg"):
        opened(root, skip_corrupt=True)


def test_the_files_are_named_when_a_stage_begins(root):
    recorder = Recorder()
    announce_size(opened(root, skip_corrupt=True), (8, 8), recorder)
    assert recorder.notes[1].startswith("WARNING: 3 corrupt image files are skipped: ")
    assert all(str(root / name) in recorder.notes[1] for name in CORRUPT)
    announce_size(opened(root), (8, 8), silent := Recorder())
    assert len(silent.notes) == 1


def test_unlabelled_images_are_skipped_likewise(root):
    dataset = open_dataset(DataSettings(name="images", root=root, skip_corrupt=True), (8, 8), 3)
    assert names(root, dataset.skipped) == CORRUPT
    assert sum(len(split.labels) for split in (dataset.train, dataset.validation, dataset.test)) == 21


def test_a_check_names_all_corrupt_files_and_tries_mended_ones_again(root):
    paths, tried = sorted(root.glob("train/*/*.jpg")), []
    named = r"cat/3\.jpg cannot be read: .*\nNor can \S+dog/0\.jpg, \S+dog/9\.jpg\."
    with pytest.raises(DataError, match=named) as caught:
        require_intact(paths, root, tried.append)
    assert "skip_corrupt = true" in caught.value.hint
    assert sum(tried) == len(paths)
    for name in CORRUPT:
        (root / name).write_bytes((root / "train/dog/1.jpg").read_bytes())
    require_intact(paths, root, tried.append)
    assert sum(tried) == 2 * len(paths)
