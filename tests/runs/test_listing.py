import os

import pytest

from catro_deploy.errors import RunFolderError
from catro_deploy.files import write_text
from catro_deploy.records import Stages
from catro_deploy.records.files import write_record
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.listing import find_run, newest_run, remove_run, run_folders


def test_the_newest_run_is_the_one_where_something_was_done_last(tmp_path):
    with pytest.raises(RunFolderError, match="catro-deploy prune"):
        newest_run(tmp_path)
    for name, age in (("old", 30), ("new", 10)):
        run = RunFolder(tmp_path / name)
        write_text(run.settings, "")
        write_record(Stages({}), run.path / "stages.json")
        for file in run.path.iterdir():
            os.utime(file, (1e9 - age, 1e9 - age))
    write_text(tmp_path / "failed" / "run.toml", "")
    assert newest_run(tmp_path).path.name == "new"
    os.utime(tmp_path / "old" / "stages.json", (1e9, 1e9))
    assert newest_run(tmp_path).path.name == "old"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make a run folder below runs/ in the working folder."""
    monkeypatch.chdir(tmp_path)

    def make(name, text=""):
        run = RunFolder(tmp_path / "runs" / name)
        write_text(run.settings, text)
        write_text(run.plan, "{}")
        return run

    return make


def test_a_run_is_found_by_path_name_or_a_part_of_its_name(made, tmp_path):
    run = made("x86-cpu-signs-0.5x-1a2b")
    made("x86-cpu-signs-0.7x-3c4d")
    root = tmp_path / "runs"
    for name in (str(run.path), run.path.name, "1a2b", "0.5x"):
        assert find_run(name, root).path == run.path
    write_text(root / f"{run.path.name}-2" / "run.toml", "")  # as --keep names it
    assert find_run("1a2b", root).path == run.path
    assert find_run("1a2b-2", root).path.name == f"{run.path.name}-2"
    with pytest.raises(RunFolderError, match=r"'signs'.*\bx86-cpu-signs-0\.7x-3c4d\b"):
        find_run("signs", root)
    with pytest.raises(RunFolderError, match=r"'1a2c'[\s\S]*runs list"):
        find_run("1a2c", root)
    with pytest.raises(RunFolderError, match=r"'x86-cpu-signs-0\.5x-1a2c'[\s\S]*\bx86-cpu-signs-0\.5x-1a2b\b"):
        find_run("x86-cpu-signs-0.5x-1a2c", root)
    (root / "notes").mkdir()
    with pytest.raises(RunFolderError, match=r"\bnotes\b.* run\.toml"):
        find_run("notes", root)


@pytest.mark.parametrize("name", ["", ".", "-", "86"])
def test_too_short_a_part_refers_to_no_run(made, tmp_path, name):
    made("x86-cpu-signs-0.5x-1a2b")
    with pytest.raises(RunFolderError):
        find_run(name, tmp_path / "runs")


def test_removing_deletes_links_and_not_what_they_point_to(made, tmp_path):
    run = made("one")
    write_text(tmp_path / "far" / "image.png", "pixels")
    (run.path / "link").symlink_to(tmp_path / "far")
    remove_run(run)
    assert not run.path.exists()
    assert (tmp_path / "far" / "image.png").is_file()


def test_what_is_no_run_folder_is_not_removed(made, tmp_path):
    run = made("one")
    (tmp_path / "runs" / "link").symlink_to(run.path)
    with pytest.raises(RunFolderError, match=f" link to {run.path}"):
        remove_run(RunFolder(tmp_path / "runs" / "link"))
    write_text(tmp_path / "data" / "image.png", "pixels")
    with pytest.raises(RunFolderError, match=r"/data\b.* run\.toml"):
        remove_run(RunFolder(tmp_path / "data"))
    with run.lock(), pytest.raises(RunFolderError, match=r"\bAnother\b"):
        remove_run(run)
    assert run.plan.is_file()


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("settings", "one/catro.toml"),
        ("checkpoint", "one/model.pth"),
        ("images", "one/data"),
        ("run", "one/two/run.toml"),
        ("working folder", "working folder"),
    ],
)
def test_a_run_folder_that_holds_more_is_not_removed(made, tmp_path, monkeypatch, what, named):
    folder = tmp_path / "runs" / "one"
    run = made("one", f'[model]\ncheckpoint = "{folder}/model.pth"\n[data]\nroot = "{folder}/data"\n')
    match what:
        case "settings":
            write_text(folder / "catro.toml", "")
        case "checkpoint":
            write_text(folder / "model.pth", "weights")
        case "images":
            write_text(folder / "data" / "image.png", "pixels")
        case "run":
            made("one/two")
        case "working folder":
            monkeypatch.chdir(folder)
    with pytest.raises(RunFolderError, match=named):
        remove_run(run)
    assert run.plan.is_file()


def test_runs_are_listed_newest_first(made, tmp_path):
    for name, time in (("old", 1e9), ("new", 1e9 + 20), ("middle", 1e9 + 10)):
        os.utime(made(name).settings, (time, time))
    assert [run.path.name for run in run_folders(tmp_path / "runs")] == ["new", "middle", "old"]
