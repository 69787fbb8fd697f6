import subprocess
import sys
from pathlib import Path

import pytest

from catro_deploy.errors import MissedError, RunFolderError, StorageError
from catro_deploy.files import write_text
from catro_deploy.records import Bench
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    return folder


def test_a_stage_is_done_with_the_same_inputs_and_outputs_only(run):
    inputs = {"settings": {"a": 1, "b": [2]}, "files": {}}
    assert not run.is_done("prune", inputs)
    write_text(run.plan, "plan")
    run.mark_done("prune", inputs, (run.plan,), 1.0)
    assert run.is_done("prune", {"files": {}, "settings": {"b": [2], "a": 1}})
    assert not run.is_done("prune", inputs | {"files": {"x": "y"}})
    assert not run.is_done("bench", inputs)
    write_text(run.plan, "changed")
    assert not run.is_done("prune", inputs)
    run.plan.unlink()
    assert not run.is_done("prune", inputs)
    assert not run.is_intact("prune")


def test_what_is_taken_back_is_not_done(run):
    write_text(run.plan, "plan")
    for stage in ("prune", "finetune", "export"):
        run.mark_done(stage, {}, (run.plan,), 0)
    run.take_back(["finetune", "export"])
    assert [run.is_done(s, {}) for s in ("prune", "finetune", "export")] == [True, False, False]


def test_what_was_missed_is_remembered(run):
    write_text(run.verify, "{}")
    run.mark_done("verify", {}, (run.verify,), 0, [MissedError("Too low.", "Train longer.")])
    (missed,) = run.missed("verify")
    assert (missed.problem, missed.hint) == ("Too low.", "Train longer.")


def test_a_missing_file_names_the_command_that_makes_it(run):
    with pytest.raises(RunFolderError, match=f"catro-deploy export --run {run.path}"):
        run.require(run.pruned_onnx, "export")


def test_broken_json_names_the_command_that_makes_it(run):
    write_text(run.bench, "{")
    with pytest.raises(RunFolderError, match=r"\bbench\.json\b.*JSON[\s\S]*catro-deploy bench"):
        load(Bench, run)


def test_the_lock_keeps_another_process_out_and_goes_with_its_holder(run):
    program = (
        "import pathlib, sys; from catro_deploy.runs.folder import RunFolder\n"
        f"with RunFolder(pathlib.Path({str(run.path)!r})).lock(): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match=rf"\bAnother\b.*{run.path}"), run.lock():
            pass
        holder.kill()
        holder.wait()
        with run.lock():
            pass


def test_the_lock_clears_what_a_killed_process_left_half_written(run):
    write_text(run.plan, "whole")
    (run.path / ".plan.json.123.part").write_text("half")
    run.packed_images.write_text("half")
    with run.lock():
        assert sorted(p.name for p in run.path.iterdir()) == [".lock", "plan.json"]


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunFolderError, match=f"{path} cannot"), RunFolder(path).lock():
            pass
    with pytest.raises(StorageError, match="/proc/nothing"), RunFolder(Path("/proc/nothing")).lock():
        pass


@pytest.mark.parametrize("content", ["[]", '{"prune": 1}', '{"prune": {"inputs": "", "outputs": {}}}', "\xff"])
def test_a_list_of_stages_that_was_edited_is_refused(run, content):
    (run.path / "stages.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(RunFolderError, match=r"stages\.json"):
        run.is_intact("prune")


def test_every_file_of_a_run_has_its_own_name(run):
    properties = [name for name, value in vars(RunFolder).items() if isinstance(value, property)]
    paths = [getattr(run, name) for name in properties]
    paths += [run.report(suffix) for suffix in ("html", "md", "json")]
    assert len(set(paths)) == len(paths)
    assert all(run.path in path.parents for path in paths)
    assert len({path.name for path in paths}) == len(paths)  # inputs of a stage are distinguished by their names


def test_a_failed_start_leaves_no_folder(tmp_path):
    run = RunFolder(tmp_path / "run")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            _fail(run, error, run.settings)
        assert not run.path.exists()


def test_a_failure_after_something_was_written_leaves_the_folder(run):
    with pytest.raises(ValueError, match="no more"):
        _fail(run, ValueError("no more"), run.settings, run.plan)
    assert run.plan.is_file()
    run.plan.unlink()
    with pytest.raises(ValueError, match="again"):  # its settings existed before
        _fail(run, ValueError("again"))
    assert run.settings.is_file()


def _fail(run, error, *files):
    with run.lock():
        for file in files:
            write_text(file, "")
        raise error
