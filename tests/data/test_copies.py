"""Test images that are also in another split are found by their content."""

import os

import pytest

from catro_deploy.data import copies
from catro_deploy.data.copies import Copies, find_copies
from catro_deploy.data.sources import PackedImage

CONTENTS = {"a": b"one", "b": b"two", "c": b"three", "d": b"four"}


@pytest.fixture
def paths(tmp_path):
    """Make a folder of files, given as a mapping of names to contents; return their paths in this order."""

    def made(folder, contents):
        (tmp_path / folder).mkdir()
        for name, content in contents.items():
            (tmp_path / folder / name).write_bytes(content)
        return [tmp_path / folder / name for name in contents]

    return made


def test_files_of_the_same_content_are_copies_whatever_their_names(paths):
    test = paths("test", CONTENTS | {"b again": b"two"})
    train, validation = paths("train", {"x": b"TWO", "y": b"two", "z": b"two"}), paths("val", {"w": b"three"})
    advanced = []
    found = find_copies(test, [train, validation], advanced.append)
    assert found == Copies(3, 5, (test[1], train[1]))
    assert sum(advanced) == 4
    assert find_copies(test, [train[:1]], advanced.append) == Copies(0, 5, None)
    assert find_copies([], [train], advanced.append) == Copies(0, 0, None)


def test_links_are_followed_and_what_cannot_be_read_is_no_copy(paths, tmp_path):
    test = paths("test", CONTENTS)
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(test[2])
    os.mkfifo(pipe)
    absent = tmp_path / "absent"
    found = find_copies([*test, pipe, absent], [[absent, pipe, link]], lambda steps: None)
    assert found == Copies(1, 6, (test[2], link))


def test_images_in_shards_are_compared_with_files(paths, tmp_path):
    shard = tmp_path / "shard.tar"
    shard.write_bytes(b"..three..")
    packed = PackedImage(shard, 2, 5)
    assert find_copies(paths("test", CONTENTS), [[packed]], lambda steps: None).example[1] == packed


def test_of_many_test_images_evenly_spaced_ones_are_compared(paths, monkeypatch):
    monkeypatch.setattr(copies, "MOST_COMPARED", 2)
    test = paths("test", CONTENTS)
    assert find_copies(test, [test], lambda steps: None) == Copies(2, 2, (test[0], test[0]))
