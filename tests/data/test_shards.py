"""Indexing of shards: each image is found with its label, and files that are not shards are reported."""

import gzip
import io
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from catro_deploy.data import shards
from catro_deploy.data.shards import read_shards
from catro_deploy.errors import DataError
from tests.data.shard_files import jpeg, samples, write_tar


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path / "cache"))


def test_every_image_is_found_with_its_label(tmp_path):
    paths = [write_tar(tmp_path / f"{k}.tar", samples(labels)) for k, labels in enumerate(([2, 0], [1, 1, 2]))]
    images, labels = read_shards(paths)
    assert labels.tolist() == [2, 0, 1, 1, 2]
    assert [image.shard for image in images] == [paths[0]] * 2 + [paths[1]] * 3
    assert [image.read() for image in images] == [jpeg(2), jpeg(0, 1), jpeg(1), jpeg(1, 1), jpeg(2, 2)]
    assert str(images[3]) == f"0001.jpg of {paths[1]}"
    assert [image.read() for image in images.at(np.array([4, 0]))] == [jpeg(2, 2), jpeg(2)]
    assert len(images[1:3]) == 2


def test_keys_end_at_the_first_dot_behind_the_folder_and_other_members_do_not_count(tmp_path):
    members = {
        "v1.0/a.left.jpg": jpeg(0),
        "v1.0/a.json": b'{"label": 1, "text": "x"}',
        "notes.txt": b"no sample",
        "v1.0/b.png.cls": b"0",
        "v1.0/c.cls": b" 2\n",
        "v1.0/c.JPG": jpeg(2),
        "d.cls": b"1",
    }
    _, labels = read_shards([write_tar(tmp_path / "a.tar", members)])
    assert labels.tolist() == [1, 2]


@given(st.lists(st.tuples(st.text(min_size=1, max_size=120).filter(lambda n: "\0" not in n), st.integers(0, 9))))
def test_whatever_names_and_sizes_members_have(tmp_path_factory, entries):
    folder = tmp_path_factory.mktemp("any")
    names = {f"{place}{name.replace('.', '_').replace('/', '_')}": label for place, (name, label) in enumerate(entries)}
    names = {name: label for name, label in names.items() if _is_encodable(name)}
    members = {
        f"{name}.{suffix}": content
        for name, label in names.items()
        for suffix, content in (("png", b"x" * label * 300), ("cls", str(label).encode()))
    }
    images, labels = read_shards([write_tar(folder / "a.tar", members)])
    assert labels.tolist() == list(names.values())
    assert [len(image.read()) for image in images] == [300 * label for label in names.values()]


def _is_encodable(name):
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda whole: gzip.compress(whole), "gunzip"),
        (lambda whole: whole[: len(whole) // 2 + 700], "damaged"),
        (lambda whole: whole[:1024] + b"?" * 512 + whole[1536:], "damaged"),
        (lambda whole: b"no tar" * 200, "damaged"),
    ],
)
def test_a_shard_that_cannot_be_read_is_named(tmp_path, damage, said):
    path = write_tar(tmp_path / "train-3.tar", samples([0, 1, 2] * 10))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=rf"(?s)train-3\.tar.*{said}"):
        read_shards([path])


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"a.jpg": jpeg(0)}, r"\ba\.jpg of .*a\.tar.*no label"),
        ({"a.jpg": jpeg(0), "a.cls": b"cat"}, "no label"),
        ({"a.jpg": jpeg(0), "a.cls": b"-1"}, "no label"),
        ({"a.jpg": jpeg(0), "a.cls": b"true"}, "no label"),
        ({"a.jpg": jpeg(0), "a.cls": b"[" * 100_000}, "no label"),
        ({"a.jpg": jpeg(0), "a.json": b'{"text": 1}'}, "no label"),
        ({"a.jpg": jpeg(0), "a.png": jpeg(0), "a.cls": b"1"}, r"\ba of .*a\.tar.*\b2\b"),
    ],
)
def test_an_image_needs_one_label(tmp_path, members, said):
    with pytest.raises(DataError, match=said):
        read_shards([write_tar(tmp_path / "a.tar", members)])


def test_a_shard_that_is_gone_or_shorter_is_named(tmp_path):
    path = write_tar(tmp_path / "a.tar", samples([0, 1]))
    images, _ = read_shards([path])
    os.truncate(path, images[1].offset + 1)
    with pytest.raises(DataError, match=r"a\.tar.* shorter"):
        images[1].read()
    path.unlink()
    with pytest.raises(DataError, match=r"a\.tar.*No such file"):
        images[0].read()
    with pytest.raises(DataError, match=r"a\.tar.*No such file"):
        read_shards([path])


def test_an_unchanged_shard_is_not_read_again(tmp_path, monkeypatch):
    path = write_tar(tmp_path / "a.tar", samples([0, 1]))
    monkeypatch.setattr(shards, "SETTLED_NS", 0)
    first = read_shards([path])
    with monkeypatch.context() as patch:
        patch.setattr(shards, "_scan", lambda path: pytest.fail("read again"))
        again = read_shards([path])
    assert again[1].tolist() == first[1].tolist()
    assert list(again[0]) == list(first[0])
    write_tar(path, samples([1, 0, 2]))
    assert read_shards([path])[1].tolist() == [1, 0, 2]


def test_a_damaged_index_is_rebuilt(tmp_path, monkeypatch):
    path = write_tar(tmp_path / "a.tar", samples([0, 1]))
    monkeypatch.setattr(shards, "SETTLED_NS", 0)
    read_shards([path])
    (index,) = (tmp_path / "cache").rglob("*.npz")
    index.write_bytes(index.read_bytes()[:50])
    assert read_shards([path])[1].tolist() == [0, 1]


@pytest.mark.timeout(30)
def test_a_pipe_in_the_place_of_the_index_is_replaced(tmp_path, monkeypatch):
    path = write_tar(tmp_path / "a.tar", samples([0, 1]))
    monkeypatch.setattr(shards, "SETTLED_NS", 0)
    read_shards([path])
    (index,) = (tmp_path / "cache").rglob("*.npz")
    index.unlink()
    os.mkfifo(index)
    assert read_shards([path])[1].tolist() == [0, 1]
    assert index.is_file()


def test_pillow_reads_what_is_found(tmp_path):
    images, _ = read_shards([write_tar(tmp_path / "a.tar", samples([0, 1]))])
    assert Image.open(io.BytesIO(images[1].read())).size == (9, 8)
