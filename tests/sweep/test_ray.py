"""Sweeps on a real Ray cluster of two nodes, both on this machine."""

import itertools
import json
import os
import subprocess
import sys
import time

import pytest

from catro_deploy.errors import FaultError, SettingsError
from catro_deploy.files import file_hash
from catro_deploy.runs.folder import RunFolder
from catro_deploy.sweep.ray_engine import _node_of
from tests.quick_stages import diary
from tests.sweep.test_local import QUICK
from tests.tiny import CHECKOUT, command

pytest.importorskip("ray")
ENVIRONMENT = {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1", "QUICK_EPOCH_S": "0.2"}
TWELVE = ("--targets", "x86-cpu,jetson-orin", "--classes", "across,down", "--classes", "all")
TWELVE += ("--budgets", "50%flops,40%flops,30%flops", "--cpus", "1", "--json")
DATED = {"stages.json", "diary.txt"}


class Nodes:
    """A cluster whose first node trains two cells at a time; the second trains one at a time and measures."""

    def __init__(self):
        second = {"num_cpus": 1, "resources": {"device:x86-cpu": 1}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.sweep.ray_cluster", json.dumps({"num_cpus": 2}), json.dumps(second)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=os.environ | ENVIRONMENT,
        )
        self.address = self.process.stdout.readline().strip()

    def request(self, what):
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def nodes():
    found = Nodes()
    yield found
    found.end()


def sweep(*arguments):
    """Start a sweep with the quick stages in a separate process."""
    command_line = [sys.executable, "-c", QUICK, "sweep", *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command_line, text=True, env=os.environ | ENVIRONMENT, **streams)


def finished(process):
    stdout, stderr = process.communicate(timeout=250)
    assert process.returncode == 0, stderr
    return json.loads(stdout)


def files_of(folder):
    """The hashes of the files in a run folder, except hidden files such as locks, and files with dates."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in DATED]
    return {str(path.relative_to(folder)): file_hash(path) for path in files if not path.name.startswith(".")}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twelve_cells_on_two_nodes_are_those_of_one_machine_and_none_measure_at_once(quick, nodes):
    ours = finished(sweep(*TWELVE, "--folder", "here/sweep"))
    theirs = finished(sweep(*TWELVE, "--folder", "there/sweep", "--engine", "ray", "--address", nodes.address))

    assert [cell["name"] for cell in theirs["cells"]] == [cell["name"] for cell in ours["cells"]]
    assert {cell["status"] for cell in theirs["cells"]} == {"done"}
    for cell in theirs["cells"]:
        here, there = (quick / side / "sweep" / cell["run"] for side in ("here", "there"))
        assert files_of(there) == files_of(here), cell["name"]
    measured = [step for cell in theirs["cells"] for step in cell["steps"] if step["device"] == "x86-cpu"]
    spans = sorted((step["began"], step["ended"]) for step in measured)
    assert len(spans) == 6
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(spans))
    trained = [
        (step["began"], step["ended"]) for cell in theirs["cells"] for step in cell["steps"] if not step["device"]
    ]
    assert any(b < d and c < a for (b, a), (c, d) in itertools.combinations(trained, 2))  # in parallel


@pytest.mark.slow
def test_where_machines_share_no_folder_runs_are_brought_there_and_back(quick, nodes):
    one = ("--budgets", "50%flops", "--json")
    finished(sweep(*one, "--folder", "here/sweep"))
    finished(sweep(*one, "--folder", "there/sweep", "--engine", "ray", "--address", nodes.address, "--carry"))
    here, there = (quick / side / "sweep" / "x86-cpu-all-50pct-flops" for side in ("here", "there"))
    assert files_of(there) == files_of(here)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("carry", ["--no-carry", "--carry"])
def test_a_node_that_is_killed_costs_an_epoch_at_most(quick, nodes, carry):
    three = (
        "--targets",
        "jetson-orin",
        "--budgets",
        "50%flops,40%flops,30%flops",
        "--cpus",
        "1",
        "--epochs",
        "60",
        "--json",
    )
    process = sweep(*three, "--folder", "lost", "--engine", "ray", "--address", nodes.address, carry)
    runs = [RunFolder(quick / "lost" / f"jetson-orin-all-{share}pct-flops") for share in (50, 40, 30)]
    wait_until(lambda: all(saved(run) >= 5 for run in runs), process)
    before = {run.path.name: saved(run) for run in runs}
    assert nodes.request("kill") == "killed"
    assert nodes.request("add") == "added"
    found = finished(process)

    assert {cell["status"] for cell in found["cells"]} == {"done"}
    attempts = {cell["name"]: [step["attempt"] for step in cell["steps"]] for cell in found["cells"]}
    (lost,) = [name for name, numbers in attempts.items() if numbers[-1] > 1]
    epochs = [line for line in diary(RunFolder(quick / "lost" / lost)) if line.startswith("epoch")]
    again = len(epochs) - 60 if carry == "--no-carry" else before[lost] - (60 - len(epochs))
    assert again <= 1
    assert all(RunFolder(quick / "lost" / name).weights.read_text() == "60 epochs" for name in attempts)


def saved(run):
    """The number of epochs that the training in ``run`` has saved."""
    try:
        return len(json.loads(run.finetune_state.read_text()))
    except (FileNotFoundError, ValueError):
        return 0


def wait_until(so, process):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if so():
            return
        time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate())


def node(cpus, **resources):
    return {"Resources": {"CPU": cpus, **resources}}


def test_a_device_is_offered_by_exactly_one_node():
    two = [node(4), node(2, **{"device:board": 1.0})]
    assert _node_of("board", two) is two[1]
    with pytest.raises(SettingsError, match=r"\bdevice:nano\b") as raised:
        _node_of("nano", two)
    assert "--resources='{\"device:nano\": 1}'" in raised.value.hint
    with pytest.raises(SettingsError, match=r"\bdevice:board 2\b.*\b2\b"):
        _node_of("board", [*two, two[1]])
    with pytest.raises(SettingsError, match=r"\bdevice:board 3\b.*\b1\b"):
        _node_of("board", [node(1, **{"device:board": 3.0})])


def test_without_ray_there_is_a_hint(quick, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = command("sweep", "--budgets", "50%flops", "--engine", "ray")
    assert result.exit_code == FaultError.exit_code
    assert "Ray is not installed." in result.stderr
    assert "'catro-deploy[ray]'" in result.stderr
    assert not (quick / "runs" / "sweep" / "sweep.json").exists()
