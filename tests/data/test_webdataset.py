"""Shards as a dataset: splits, classes and their names, and images decoded directly from the shards."""

import numpy as np
import pytest
import torch

from catro_deploy.data import open_dataset
from catro_deploy.data.base import Subset
from catro_deploy.data.files import as_files
from catro_deploy.data.sizes import image_sizes
from catro_deploy.errors import DataError
from catro_deploy.settings import DataSettings
from catro_deploy.training import reading
from catro_deploy.training.reading import read_ahead
from tests.data.shard_files import SHADES, jpeg, samples, write_tar


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path / "cache"))


def opened(root, **settings):
    return open_dataset(DataSettings(name="webdataset", root=root, **settings), (8, 8), 3)


def shades_fit(split):
    images = split.images(range(len(split.labels)))
    return (np.abs(images.numpy().mean((1, 2, 3)) - np.array(SHADES)[split.labels]) <= 2).all()


def test_shards_in_one_folder_or_in_several(tmp_path):
    write_tar(tmp_path / "train-000000.tar", samples([0, 1, 2] * 5))
    write_tar(tmp_path / "train-000001.tar", samples([2, 1, 0] * 5))
    write_tar(tmp_path / "test" / "any.tar", samples([0, 1, 2]))
    dataset = opened(tmp_path, validation=0.2)
    assert dataset.classes == ("0", "1", "2")
    splits = (dataset.train, dataset.validation, dataset.test)
    assert [np.bincount(split.labels).tolist() for split in splits] == [[8] * 3, [2] * 3, [1] * 3]
    assert all(shades_fit(split) for split in splits)
    assert not set(dataset.train.paths) & set(dataset.validation.paths)


def test_with_both_each_is_what_it_is_called(tmp_path):
    for name, count in (("train", 1), ("val", 2), ("test", 3)):
        write_tar(tmp_path / f"{name}.tar", samples([0, 1] * count))
    dataset = opened(tmp_path)
    assert [len(split.labels) for split in (dataset.train, dataset.validation, dataset.test)] == [2, 4, 6]


def test_classes_without_images_are_not_there_and_names_are_lines(tmp_path):
    write_tar(tmp_path / "train.tar", samples([7, 7, 1, 1]))
    write_tar(tmp_path / "test.tar", samples([1, 7]))
    assert opened(tmp_path).classes == ("1", "7")
    assert opened(tmp_path).test.labels.tolist() == [0, 1]
    (tmp_path / "classes.txt").write_text("\n".join(f"class {number}" for number in range(8)))
    assert opened(tmp_path).classes == ("class 1", "class 7")


@pytest.mark.parametrize(
    ("names", "said"),
    [("a\nb\n", r"classes\.txt\b.*\b2 classes\b.*\bclass 2\b"), ("a\n\nb", "class 1"), ("a\na\na", "twice")],
)
def test_names_that_do_not_fit_are_refused(tmp_path, names, said):
    write_tar(tmp_path / "train.tar", samples([0, 0, 1, 1, 2, 2]))
    write_tar(tmp_path / "test.tar", samples([0, 1, 2]))
    (tmp_path / "classes.txt").write_text(names)
    with pytest.raises(DataError, match=said):
        opened(tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no train\*\.tar"):
        opened(tmp_path)
    write_tar(tmp_path / "train.tar", samples([0, 0, 1]))
    with pytest.raises(DataError, match=r"no val\*\.tar or test\*\.tar"):
        opened(tmp_path)
    write_tar(tmp_path / "test.tar", samples([0, 2]))
    with pytest.raises(DataError, match=r"\bClass 1\b"):
        opened(tmp_path)
    write_tar(tmp_path / "val.tar", samples([0, 1]))
    with pytest.raises(DataError, match="class 2"):
        opened(tmp_path)
    write_tar(tmp_path / "train.tar", {"a.txt": b""})
    with pytest.raises(DataError, match=r"no images.*train\*\.tar"):
        opened(tmp_path)


def test_a_corrupt_image_is_named_by_member_and_shard_or_left_out(tmp_path):
    members = samples([0, 0, 0, 1, 1, 1])
    write_tar(tmp_path / "train.tar", members | {"0002.jpg": jpeg(0)[:200]})
    write_tar(tmp_path / "val.tar", members)
    write_tar(tmp_path / "test.tar", members)
    with pytest.raises(DataError, match=r"\b0002\.jpg of .*train\.tar"):
        opened(tmp_path).train.images([1, 2])
    dataset = opened(tmp_path, skip_corrupt=True)
    assert dataset.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert [str(source) for source in dataset.skipped] == [f"0002.jpg of {tmp_path / 'train.tar'}"]


def test_sizes_are_those_of_the_images(tmp_path):
    write_tar(tmp_path / "train.tar", samples([0, 0, 0, 1, 1, 1]))
    write_tar(tmp_path / "test.tar", samples([0, 1]))
    sizes = image_sizes(opened(tmp_path))
    assert (sizes.files, sizes.least, sizes.most, sizes.square) == (8, (8, 8), (13, 8), False)


def test_processes_read_parts_of_it_as_one_does(tmp_path):
    """As in training, with worker processes and, under torchrun, separate images for each process."""
    write_tar(tmp_path / "train.tar", samples([0, 1, 2] * 8))
    write_tar(tmp_path / "test.tar", samples([0, 1, 2]))
    train = opened(tmp_path).train
    files = as_files(Subset(train, (2, 0)))
    assert files is not None
    files.remembered = False
    parts = [np.arange(start, len(files.labels), 3) for start in range(3)]
    whole = files.images(np.arange(len(files.labels)))
    for part, found in zip(parts, read_ahead(files.images, parts, workers=1), strict=True):
        assert torch.equal(found, whole[part])
    assert reading.workers_for(files, 4) >= 1
