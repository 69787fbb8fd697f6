"""Sweeps on this machine through the command line: real processes with quick stages, and one with the real stages."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from catro_deploy.files import file_hash
from catro_deploy.runs.folder import RunFolder
from tests.quick_stages import diary
from tests.tiny import CHECKOUT, command

QUICK = (
    "from catro_deploy import pipeline\n"
    "from catro_deploy.sweep import orders\n"
    "from tests.quick_stages import TABLE\n"
    "pipeline.STAGES, orders.MODULE = TABLE, 'tests.sweep.quick_step'\n"
    "from catro_deploy.cli.main import main\n"
    "main()"
)
TWO = ("--budgets", "50%flops,30%flops", "--cpus", "1")
NAMES = ["x86-cpu-all-50pct-flops", "x86-cpu-all-30pct-flops"]


def start(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", QUICK, "sweep", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)} | environment,
    )


def runs_of(folder, name="sweep"):
    return [RunFolder(folder / "runs" / name / cell) for cell in NAMES]


def test_a_sweep_runs_each_cell_once_and_shows_all_of_them(quick):
    first = command("sweep", *TWO, "--json")
    assert first.exit_code == 0, first.stderr
    shown = json.loads(first.stdout)
    assert [cell["name"] for cell in shown["cells"]] == NAMES
    assert {cell["status"] for cell in shown["cells"]} == {"done"}
    assert shown["cells"][0]["figures"]["score"] == 0.96
    for run in runs_of(quick):
        stages = [line for line in diary(run) if not line.startswith("epoch")]
        assert stages == ["prune", "finetune", "export", "verify", "bench", "ship", "report"]
        assert (run.path / "run.toml").is_file()
    assert (quick / shown["page"]).is_file()
    assert "bench: done in" in (quick / "runs/sweep/logs" / f"{NAMES[0]}.log").read_text()
    steps = [step for cell in shown["cells"] for step in cell["steps"] if step["device"]]
    spans = sorted((step["began"], step["ended"]) for step in steps)
    assert len(spans) == 2
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(spans))

    again = command("sweep", *TWO)
    assert again.exit_code == 0, again.stderr
    assert "[2/2]" in again.stderr
    assert "2 cells: 2 met all requirements." in again.stdout
    assert all(diary(run).count("prune") == 1 for run in runs_of(quick))
    assert len(json.loads((quick / "runs/sweep/sweep.json").read_text())["cells"][0]["steps"]) == 2

    fewer = command("sweep", "--budgets", "50%flops")
    assert "no longer in the sweep, their folders are kept: x86-cpu-all-30pct-flops" in fewer.stderr


def test_settings_that_have_changed_are_refused_unless_results_may_be_replaced(quick):
    assert command("sweep", "--budgets", "50%flops").exit_code == 0
    refused = command("sweep", "--budgets", "50%flops", "--epochs", "5")
    assert refused.exit_code == 2
    assert "finetune.epochs: 2 -> 5" in refused.stderr
    run = RunFolder(quick / "runs" / "sweep" / "x86-cpu-all-50pct-flops")
    assert diary(run).count("finetune") == 1
    assert command("sweep", "--budgets", "50%flops", "--epochs", "5", "--replace").exit_code == 0
    assert diary(run).count("prune") == 1
    assert diary(run).count("finetune") == 2


def test_what_was_missed_and_what_failed_have_exit_codes_of_their_own(quick, monkeypatch):
    missed = command("sweep", "--budgets", "50%flops", "--max-drop", "1")
    assert missed.exit_code == 3
    assert "1 cell of 1 missed a requirement: x86-cpu-all-50pct-flops." in missed.stderr
    assert command("sweep", "--budgets", "50%flops", "--max-drop", "1").exit_code == 3  # from the stored records

    monkeypatch.setenv("QUICK_FAIL", "finetune:fault")
    failed = command("sweep", "--budgets", "30%flops", "--folder", "runs/other")
    assert failed.exit_code == 1
    assert "RuntimeError: a strange thing" in failed.stderr
    assert any(line.startswith("Run the sweep again") for line in failed.stderr.splitlines())
    monkeypatch.delenv("QUICK_FAIL")
    assert command("sweep", "--budgets", "30%flops", "--folder", "runs/other").exit_code == 0


def test_one_sweep_at_a_time_works_in_a_folder(quick):
    process = start(*TWO, QUICK_EPOCH_S="0.2")
    wait_for_epochs(quick, process)
    refused = command("sweep", *TWO)
    assert refused.exit_code == 2
    assert "Another catro-deploy is working in runs/sweep" in refused.stderr
    assert "choose another folder with --folder" in refused.stderr
    process.terminate()
    process.communicate(timeout=30)


def wait_for_epochs(folder, process, epoch="epoch-2"):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        begun = [run for run in runs_of(folder) if epoch in diary(run)]
        if begun:
            return begun
        time.sleep(0.02)
    raise AssertionError(f"no {epoch}: {process.communicate()}")


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL], ids=lambda kill: kill.name)
def test_a_stopped_sweep_resumes_where_it_was_and_leaves_nothing_running(quick, kill):
    process = start(*TWO, "--epochs", "30", QUICK_EPOCH_S="0.1")
    run = wait_for_epochs(quick, process)[0]
    process.send_signal(kill)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}[kill]
    assert "Traceback" not in stderr
    if kill is not signal.SIGKILL:
        assert stderr.rstrip().endswith("the same command continues from there.")
    wait_until_still(run)

    again = start(*TWO, "--epochs", "30")
    _, stderr = again.communicate(timeout=60)
    assert again.returncode == 0, stderr
    epochs = [line for line in diary(run) if line.startswith("epoch")]
    assert len(epochs) in (30, 31)  # at most the epoch that was being written is run twice
    assert diary(run).count("prune") == 1


def wait_until_still(run):
    """Wait until no process holds the lock of ``run``; it must be released within 10 s."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with run.lock():
                return
        except Exception:
            time.sleep(0.1)
    raise AssertionError(f"{run.path} is still at work")


@pytest.mark.slow
def test_a_cell_is_what_run_makes_of_the_same_settings(tiny):
    shared = ("--budgets", "50%flops", "--classes", "across,down", "--cpus", "1")
    swept = command("sweep", *shared)
    assert swept.exit_code in (0, 3), swept.stderr  # whether so small a network is faster is chance
    cell = tiny / "runs" / "sweep" / "x86-cpu-across+down-50pct-flops"
    alone = command("run", "--budget", "50%flops", "--classes", "across,down", "--run", "alone")
    assert alone.exit_code in (0, 3), alone.stderr
    for name in ("plan.json", "weights.safetensors", "original.onnx", "pruned.onnx", "ship/model.json"):
        assert file_hash(cell / name) == file_hash(tiny / "alone" / name), name
