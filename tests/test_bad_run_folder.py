"""Run folders that were edited, emptied, filled up or locked, through the command line and the real stages."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from catro_deploy.files import file_hash
from catro_deploy.runs.folder import RunFolder
from tests.forked import Forked
from tests.test_bad_input import refused
from tests.tiny import command, exit_code_of, start

LARGEST_BYTES = 15_000  # less than what each stage writes, more than stages.json
STAGES = ("prune", "finetune", "export", "verify", "bench", "report")


def ran(command_name, run="run", *flags):
    """The stages that the command ran and did not skip; its exit code is checked against the records."""
    result = command(command_name, "--run", str(run), *flags)
    asked = () if command_name == "run" else (command_name,)
    assert result.exit_code == exit_code_of(Path(run), *asked), result.stderr
    return [stage for stage in STAGES if f"{stage}: done in" in result.stderr]


def hashes(folder):
    """The hashes of all files except the list of stages, by path."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "stages.json"]
    return {str(path.relative_to(folder)): file_hash(path) for path in files}


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("spoil", [cut, Path.unlink], ids=["cut", "gone"])
@pytest.mark.parametrize(
    ("name", "stage", "maker", "again"),
    [
        ("plan.json", "finetune", "prune", ["prune"]),
        ("weights.safetensors", "export", "finetune", ["finetune"]),
        ("pruned.onnx", "bench", "export", ["export"]),
        ("verify.json", "report", "verify", ["verify"]),
        ("bench.json", "report", "bench", ["bench", "report"]),
        ("report.html", None, None, ["report"]),
    ],
)
def test_a_damaged_file_is_made_again(tiny_run, spoil, name, stage, maker, again):
    spoil(tiny_run.path / name)
    if stage:
        refused(command(stage, "--run", "run"), 2, f"needs the results of {maker}", f"catro-deploy {maker} --run run")
    redone = ran("run")
    assert redone[: len(again)] == again
    assert "prune" not in redone or maker == "prune"
    assert ran("run") == []


@pytest.mark.parametrize(
    "text", ["{{{", "[1, 2]", '{"prune": 3}', '{"prune": {}}', '{"prune": {"outputs": []}}', "\xff"]
)
def test_a_damaged_list_of_stages_is_refused_and_files_stay(tiny_run, text):
    (tiny_run.path / "stages.json").write_bytes(text.encode("latin-1"))
    before = file_hash(tiny_run.weights)
    refused(command("run", "--run", "run"), 2, "run/stages.json", "Delete it", "catro-deploy run --run run")
    assert file_hash(tiny_run.weights) == before


def test_without_the_list_of_stages_all_are_run_again(tiny_run):
    (tiny_run.path / "stages.json").unlink()
    assert ran("run") == list(STAGES)


def test_a_wrong_key_in_the_runs_settings(tiny_run):
    text = tiny_run.settings.read_text()
    tiny_run.settings.write_text(text.replace("[finetune]", "[finetune]\nepocs = 3"))
    refused(
        command("report", "--run", "run"), 2, "run/run.toml", "finetune.epocs is not a setting. Did you mean epochs?"
    )
    tiny_run.settings.write_text(text)
    assert ran("report") == []


def test_settings_that_went_away(tiny_run):
    tiny_run.settings.unlink()
    refused(command("report", "--run", "run"), 2, "run is not a run folder: it has no run.toml.")


def test_a_damaged_fine_tuning_state_says_to_delete_it(tiny_run):
    tiny_run.weights.unlink()
    tiny_run.finetune_state.write_bytes(b"nothing")
    refused(command("run", "--run", "run"), 2, "finetune.resume.safetensors", "Delete it to start the training over.")
    tiny_run.finetune_state.unlink()
    assert "finetune" in ran("run")


def test_a_report_before_its_stages_names_what_is_missing(tiny):
    refused(command("report"), 2, "There is no finished pruning", "catro-deploy prune")
    assert command("prune").exit_code == 0
    refused(command("report"), 2, "needs the results of finetune, export, verify, bench", "catro-deploy finetune --run")


def test_a_file_is_no_run_folder(tiny):
    refused(command("prune", "--run", "catro.toml"), 2, "catro.toml cannot be a folder", "--run")
    refused(command("prune", "--run", "catro.toml/run"), 2, "catro.toml/run cannot be a folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tiny_run):
    tiny_run.path.chmod(0o500)
    try:
        refused(command("report", "--run", "run", "--force"), 1, "run", "Permission denied")
    finally:
        tiny_run.path.chmod(0o700)


def test_two_runs_in_one_folder(tiny_run):
    with tiny_run.lock():
        refused(command("run", "--run", "run"), 2, "Another catro-deploy is working in run.", "Wait until it finishes")
    assert ran("run") == []


def test_json_is_alone_on_the_standard_output(tiny_run):
    for stage in STAGES:
        result = command(stage, "--run", "run", "--json")
        assert json.loads(result.stdout)["run"] == "run"
    result = command("verify", "--run", "run", "--json", "--max-drop", "0", "--tolerance", "1e-12")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["passed"] is False
    assert "verify.tolerance allows 1e-12." in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["prune", "finetune", "export", "report"])
def test_a_full_disk_leaves_what_was_there(tiny_run, tmp_path, stage):
    before = hashes(tiny_run.path)
    process = Forked(
        stage,
        "--run",
        "run",
        "--force",
        cwd=tiny_run.path.parent,
        output=tmp_path / "said",
        largest_bytes=LARGEST_BYTES,
    )
    assert process.end() == 1, process.stderr()
    assert "could not be written: File too large." in process.stderr()
    assert "Free some space" in process.stderr()
    assert "Traceback" not in process.stdout() + process.stderr()
    after = hashes(tiny_run.path)
    assert not [name for name in after if name.endswith(".part")]
    assert {name: after[name] for name in before if name in after} == before
    assert ran("run")[0] == stage


@pytest.mark.slow
def test_a_reader_that_leaves_and_a_full_standard_output(tiny_run):
    process = start("report", "--run", "run", "--json")
    process.stdout.close()
    assert process.stderr.read().endswith("report: unchanged, skipped\n")
    assert process.wait(timeout=60) == 1
    process.stderr.close()
    with Path("/dev/full").open("w") as full:
        process = start("report", "--run", "run", stdout=full)
        assert "No space left on device" in process.communicate(timeout=60)[1]
        assert process.returncode == 1


@pytest.mark.slow
def test_streams_that_are_closed_from_the_start(tiny_run):
    command_line = [sys.executable, "-m", "catro_deploy.cli.main", "report", "--run", "run", "--force"]
    for closed in (">&-", "2>&-"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *command_line], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_a_folder_with_spaces_and_other_alphabets(tiny, tiny_finished):
    place = tiny / "Zoë's 測試 [1]"
    shutil.copytree(tiny_finished, place / "my run")
    result = command("report", "--run", str(place / "my run"), "--force")
    assert result.exit_code == 0, result.stderr
    assert ran("finetune", place / "my run", "--epochs", "1") == ["finetune"]
    assert RunFolder(place / "my run").is_intact("finetune")
