"""Profiles on disk, whole and damaged."""

import csv
import json
import os

import pytest

from catro_deploy.errors import ProfileError, StorageError
from catro_deploy.files import file_hash, text_hash
from catro_deploy.latency.profile import load_profile, profiles_of, save_profile
from catro_deploy.latency.profile.store import damaged_profiles
from catro_deploy.latency.table import Cell
from catro_deploy.resources import profiles_folder
from tests.latency.profile.quick import made_profile


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path))
    folder = profiles_folder() / "x86-cpu-1"
    save_profile(made_profile(), folder)
    return folder


def test_a_profile_comes_back_as_it_was(folder):
    assert load_profile(folder) == made_profile()
    assert sorted(path.name for path in folder.iterdir()) == ["cells.csv", "profile.json"]


def test_the_cells_are_a_table_that_others_can_read(folder):
    first, second, *_ = (folder / "cells.csv").read_text().splitlines()
    assert first == "shape,in_channels,out_channels,us,nodes,spread,samples"
    assert second == "dense kernel 9 stride 1 positions 64 8->8 Conv 3x3+Relu,4,8,12.25,1,0.031,3"


def test_times_are_kept_to_four_digits(folder):
    save_profile(made_profile(cells={"shape": {(4, 8): Cell(1234.5678, 1, 0.12345, 7)}}), folder)
    assert load_profile(folder).cells == {"shape": {(4, 8): Cell(1235, 1, 0.123, 7)}}


def refused(folder, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason) as caught:
        load_profile(folder)
    assert "catro-deploy profile --force" in caught.value.hint
    assert str(folder) in caught.value.problem


@pytest.mark.parametrize("left", [0, 1, 60, -1])
def test_a_truncated_table_is_refused(folder, left):
    cells = folder / "cells.csv"
    cells.write_text(cells.read_text()[:left])
    refused(folder, r"cells\.csv")


def test_a_changed_number_in_the_table_is_refused(folder):
    cells = folder / "cells.csv"
    cells.write_text(cells.read_text().replace("12.25", "1.225"))
    refused(folder, r"cells\.csv")


def test_a_changed_number_in_the_description_is_refused(folder):
    file = folder / "profile.json"
    content = json.loads(file.read_text())
    content["fit"]["slope"] = 0.5
    file.write_text(json.dumps(content))
    refused(folder, r"profile\.json.* changed")


@pytest.mark.parametrize("content", [b"", b"{", b'{"target": "x8', b"\xff\xfe"])
def test_a_description_that_is_cut_off_is_refused(folder, content):
    (folder / "profile.json").write_bytes(content)
    refused(folder, "read: ")


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"format": ' * 100_000])
def test_nesting_beyond_reason_is_refused(folder, deep):
    (folder / "profile.json").write_text(deep)
    refused(folder, "cannot be read")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["profile.json", "cells.csv"])
def test_a_pipe_is_not_waited_for(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, "not a regular file")


@pytest.mark.parametrize(("column", "value"), [("us", "fast"), ("us", ""), ("samples", "1.5"), (None, None)])
def test_a_table_that_is_none_is_refused_whatever_its_hash_says(folder, column, value):
    """As if another version had written other columns."""
    table, file = folder / "cells.csv", folder / "profile.json"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    rows[0] |= {column: value} if column else {}
    lines = [",".join(rows[0]), *(",".join(f'"{cell}"' for cell in row.values()) for row in rows)]
    table.write_text("\n".join(lines if column else [lines[0], "short"]))
    content = json.loads(file.read_text()) | {"cells_sha256": file_hash(table)}
    del content["sha256"]
    file.write_text(json.dumps(content | {"sha256": text_hash(json.dumps(content, sort_keys=True))}))
    refused(folder, "is not a latency profile")


@pytest.mark.parametrize("name", ["profile.json", "cells.csv"])
def test_a_missing_file_is_refused(folder, name):
    (folder / name).unlink()
    refused(folder, f"No such file.*{name}")


@pytest.mark.parametrize(("changed", "found"), [('{"format": 1}', 1), ("{}", "none"), ("[]", "none")])
def test_another_format_is_refused(folder, changed, found):
    (folder / "profile.json").write_text(changed)
    refused(folder, rf"\bformat {found}\b.*\b2\b")


def test_white_space_does_not_matter(folder):
    file = folder / "profile.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=4, sort_keys=True))
    assert load_profile(folder) == made_profile()


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        save_profile(made_profile(), tmp_path / "file")


def test_profiles_of_a_target_the_newest_first_without_damaged_ones(folder):
    for place, name in enumerate(("x86-cpu-2", "x86-cpu-3", "x86-cpu-4", "x86-cpu-old-5")):
        target = "x86-cpu-old" if "old" in name else "x86-cpu"
        save_profile(made_profile(networks=place, target=target), folder.parent / name)
        os.utime(folder.parent / name / "profile.json", (1e9, 1e9 - place))
    os.utime(folder / "profile.json", (1e9, 1e9 - 100))
    (folder.parent / "x86-cpu-3" / "cells.csv").write_text("shape")
    (folder.parent / "x86-cpu-deep").mkdir()
    (folder.parent / "x86-cpu-deep" / "profile.json").write_text("[" * 100_000)
    (folder.parent / "x86-cpu-unfinished").mkdir()
    assert [(path.name, of.networks) for path, of in profiles_of("x86-cpu")] == [
        ("x86-cpu-2", 0),
        ("x86-cpu-4", 2),
        ("x86-cpu-1", 18),
    ]
    assert [path.name for path, _ in profiles_of("x86-cpu-old")] == ["x86-cpu-old-5"]
    assert list(profiles_of("jetson-orin")) == []
    three, deep = damaged_profiles("x86-cpu")
    assert "x86-cpu-deep cannot be read" in deep.problem.replace("'", "")
    assert "x86-cpu-3/cells.csv was truncated" in three.problem
    assert damaged_profiles("x86-cpu-old") == []
