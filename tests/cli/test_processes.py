"""Behaviour that only a real process shows: signals, system limits, closed pipes and imports."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from catro_deploy.runs.folder import RunFolder
from tests.quick_stages import diary

SLOW = {"QUICK_EPOCH_S": "0.05"}
LIMIT_S = 120
HEAVY = ("torch", "onnxruntime", "onnx", "numpy")


def wait_for_epoch(folder, process):
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        for path in folder.glob("runs/*"):
            if "epoch-3" in diary(RunFolder(path)):
                return RunFolder(path)
        time.sleep(0.01)
    raise AssertionError(f"no third epoch: {process.communicate()}")


STOPS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)]


@pytest.mark.parametrize(("kill", "code"), STOPS)
def test_a_stopped_run_resumes_where_it_was(start, folder, kill, code):
    process = start("run", "--epochs", "200", environment=SLOW)
    run = wait_for_epoch(folder, process)
    process.send_signal(kill)
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code
    assert stdout == ""
    assert "Traceback" not in stderr
    if kill is not signal.SIGKILL:
        assert stderr.rstrip().endswith("the same command continues from there.")
    done = len([line for line in diary(run) if line.startswith("epoch")])
    assert run.is_intact("prune")
    assert not run.weights.exists()

    again = start("run", "--epochs", "200")
    assert again.communicate(timeout=LIMIT_S)[0]
    assert again.returncode == 0
    epochs = [line for line in diary(run) if line.startswith("epoch")]
    assert diary(run).count("prune") == 1
    assert len(epochs) in (200, 201)  # at most the epoch that was being written is run twice
    assert done >= 3


def test_what_nohup_ignores_stays_ignored(start, folder):
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = start("run", "--epochs", "20", environment=SLOW, preexec_fn=ignore)
    wait_for_epoch(folder, process)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("given", "missing"), [({"RANK": "0"}, "WORLD_SIZE, LOCAL_RANK"), ({}, "RANK, WORLD_SIZE, LOCAL_RANK")]
)
def test_half_an_environment_of_torchrun_is_a_mistake(start, given, missing):
    process = start("run", environment={"TORCHELASTIC_RUN_ID": "none", **given})
    _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert f"TORCHELASTIC_RUN_ID is set without {missing}:" in stderr


def test_a_full_disk_is_reported_and_earlier_stages_stay(start, folder, the_run):
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))}
    process = start("run", environment={"QUICK_FAIL": "export:disk"}, **limit)
    _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "could not be written: File too large." in stderr
    assert "continues where it stopped" in stderr
    assert RunFolder(the_run()).is_intact("finetune")
    again = start("run")
    again.communicate(timeout=LIMIT_S)
    assert again.returncode == 0
    assert diary(RunFolder(the_run())).count("finetune") == 1


def test_a_reader_that_leaves_is_no_fault(start, folder):
    process = start("targets", "show", "x86-cpu", "--json")
    process.stdout.close()
    stderr = process.stderr.read()
    process.wait(timeout=LIMIT_S)
    process.stderr.close()
    assert process.returncode == 1
    assert stderr == ""


def test_without_a_screen_a_short_training_is_one_line(start):
    process = start("run")
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert stderr.count("Fine-tuning: done in 0:00; validation accuracy 98.00%\n") == 1
    assert stderr.count("Fine-tuning") == 1
    assert "Fine-tuning" not in stdout


@pytest.mark.parametrize(
    ("command", "heavy"),
    [([], (*HEAVY, "pydantic")), (["run"], HEAVY), (["targets"], HEAVY)],  # Typer parses options with pydantic
)
def test_help_imports_nothing_heavy(command, heavy):
    program = (
        "import sys\n"
        "from catro_deploy.cli.main import app\n"
        f"try: app({[*command, '--help']!r})\n"
        f"finally: print(sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "Usage" in done.stdout


@pytest.mark.parametrize("module", ["runs", "settings", "files", "progress", "pipeline", "toml", "data"])
def test_foundations_do_not_import_torch(module):
    program = f"import sys, catro_deploy.{module}; assert not {{'torch', 'onnx'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_module_can_be_run(folder):
    environment = os.environ | {"COLUMNS": "80"}
    command = [sys.executable, "-m", "catro_deploy.cli.main", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("catro-deploy ")
