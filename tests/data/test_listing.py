"""Listings of image files: equal to pathlib's, cached, and never used for a folder that has changed."""

import errno
import json
import os
import pickle

import numpy as np
import pytest

from catro_deploy.data import listing
from catro_deploy.data.listing import SUFFIXES, FilePaths, image_files
from catro_deploy.errors import DataError

YEAR_NS = 365 * 86400 * 10**9


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Files in folders that are nested and next to each other; cached listings are in cache/."""
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(listing, "KEPT_FROM", 1)
    monkeypatch.setattr(listing, "SETTLED_NS", 0)
    root = tmp_path / "root"
    for name in (
        "b/2.png", "b/10.jpg", "b/deep/er/0.PNG", "b.png", "a/x.jpeg", "a/notes.txt", "a/.hidden.png", ".no/1.png",
        "b/deep.png", "ä/ü.webp", "odd.png/1.png",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def found_by_pathlib(root):
    return sorted(
        path
        for path in root.rglob("*")
        if path.suffix.lower() in SUFFIXES and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )


@pytest.fixture
def scanned(monkeypatch):
    """The names of the folders that are read."""
    names, scandir = [], os.scandir

    def recorded(path):
        names.append(path.name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", recorded)
    return names


def test_files_are_those_that_pathlib_finds_in_its_order(tree):
    assert list(image_files(tree)) == found_by_pathlib(tree)
    assert len(image_files(tree)) == 9


def test_a_kept_listing_is_the_same_and_reads_no_folder(tree, scanned):
    first = list(image_files(tree))
    assert len(scanned) == 7
    scanned.clear()
    assert list(image_files(tree)) == first
    assert scanned == []


@pytest.mark.parametrize("change", ["add", "remove", "rename", "replace the folder"])
def test_only_a_folder_that_has_changed_is_read_again(tree, scanned, change):
    image_files(tree)
    old = (tree / "b" / "deep").stat()
    if change == "add":
        (tree / "b" / "deep" / "new.png").touch()
    elif change == "remove":
        (tree / "b" / "deep.png").unlink()
    elif change == "rename":
        (tree / "b" / "2.png").rename(tree / "b" / "3.png")
    else:
        (tree / "b" / "deep").rename(tree / "away")
        (tree / "b" / "deep").mkdir()
        (tree / "b" / "deep" / "other.png").touch()
    # As unpacking an archive does: the modification time can be set back, the change time of the inode cannot.
    os.utime(tree / "b" / "deep", ns=(old.st_atime_ns, old.st_mtime_ns))
    scanned.clear()
    listed, read = list(image_files(tree)), set(scanned)
    assert listed == found_by_pathlib(tree)
    assert read <= {"root", "b", "deep", "er", "away"}


def test_a_folder_that_may_still_change_within_a_tick_of_the_clock_is_not_trusted(tree, scanned, monkeypatch):
    monkeypatch.setattr(listing, "SETTLED_NS", YEAR_NS)
    image_files(tree)
    count = len(scanned)
    image_files(tree)
    assert len(scanned) == 2 * count


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 0, "folders": {}}', b'{"version": 2}', b"\xff", b"[" * 100_000]
)
def test_a_damaged_listing_is_rebuilt(tree, tmp_path, content):
    image_files(tree)
    (kept,) = (tmp_path / "cache" / "listings").iterdir()
    whole = json.loads(kept.read_bytes())
    kept.write_bytes(content)
    assert list(image_files(tree)) == found_by_pathlib(tree)
    assert json.loads(kept.read_bytes()) == whole


@pytest.mark.timeout(30)
def test_a_pipe_in_the_place_of_a_listing_is_replaced(tree, tmp_path):
    image_files(tree)
    (kept,) = (tmp_path / "cache" / "listings").iterdir()
    kept.unlink()
    os.mkfifo(kept)
    assert list(image_files(tree)) == found_by_pathlib(tree)
    assert kept.is_file()


def test_a_cache_that_cannot_be_written_does_no_harm(tree, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path / "file"))
    assert list(image_files(tree)) == found_by_pathlib(tree)


def test_short_listings_are_not_kept(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "KEPT_FROM", 10)
    image_files(tree)
    assert not (tmp_path / "cache").exists()


def test_links_to_folders_are_followed(tree, tmp_path):
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "1.png").touch()
    (tree / "linked").symlink_to(tmp_path / "elsewhere")
    (tree / "a" / "more").symlink_to(tmp_path / "elsewhere" / "deep")
    found = ["a/more/1.png", "a/x.jpeg", "linked/deep/1.png"]
    assert list(image_files(tree, ("a", "linked")).names()) == found
    (tmp_path / "elsewhere" / "deep" / "2.png").touch()
    found = ["a/more/1.png", "a/more/2.png", "a/x.jpeg", "linked/deep/1.png", "linked/deep/2.png"]
    assert list(image_files(tree, ("a", "linked")).names()) == found


def test_links_that_lead_in_circles_are_followed_once(tree):
    before = list(image_files(tree).names())
    (tree / "a" / "self").symlink_to(tree / "a")
    (tree / "a" / "up").symlink_to(tree)
    (tree / "ä" / "b").symlink_to(tree / "b" / "deep")
    (tree / "b" / "deep" / "a").symlink_to(tree / "ä")
    assert set(image_files(tree).names()) == {*before, "ä/b/er/0.PNG", "b/deep/a/ü.webp"}


def test_a_folder_that_cannot_be_read_is_named(tree, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"root/a cannot be read: Permission denied\."):
        image_files(tree, ("a",))


def test_names_that_are_no_utf8_are_kept(tree):
    (tree / os.fsdecode(b"caf\xe9.png")).touch()
    assert list(image_files(tree)) == list(image_files(tree)) == found_by_pathlib(tree)


def test_paths_take_little_memory(tmp_path):
    names = [f"class_{i % 100:03d}/image_{i:06d}.jpg" for i in range(10_000)]
    paths = FilePaths(tmp_path, names)
    chosen = paths.at(np.array([9_999, 0, 1]))
    assert [str(path.relative_to(tmp_path)) for path in chosen] == [names[-1], names[0], names[1]]
    assert list(paths[2:4]) == [tmp_path / names[2], tmp_path / names[3]]
    assert tmp_path / names[5] in paths
    assert len(pickle.dumps(paths)) / len(names) < 50
