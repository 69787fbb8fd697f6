import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from catro_deploy.agent import process
from catro_deploy.agent.jobs import BenchJob, Order
from catro_deploy.agent.process import job_events
from catro_deploy.agent.wire import to_json
from catro_deploy.errors import FaultError, ModelError
from tests.agent.test_agent import PROTOCOL, job_for, with_pruned, workspace

LONG = replace(PROTOCOL, seconds=60.0, limit_s=60.0)


def events_of(job: BenchJob, folder: Path, limit_s: float = 3600) -> Generator[dict]:
    return job_events(job, workspace(folder), limit_s)


def children() -> set[int]:
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_progress_then_the_result(tmp_path):
    events = list(events_of(job_for(tmp_path, original={"layers": 3}, pruned={}), tmp_path))
    assert [event["event"] for event in events[:-1]] == ["progress"] * (len(events) - 1)
    assert events[-1]["result"]["original"]["n"] >= 100
    assert json.dumps(events[-1], allow_nan=False)


def test_the_agents_error_is_raised_here_with_its_class(tmp_path):
    job = with_pruned(job_for(tmp_path, original={}, pruned={}), file="gone.onnx")
    with pytest.raises(ModelError, match=r"gone\.onnx") as caught:
        list(events_of(job, tmp_path))
    assert "catro-deploy export" in caught.value.hint


def test_a_crash_is_explained_by_the_last_lines_of_stderr(tmp_path):
    job = job_for(tmp_path, original={}, pruned={}, protocol=replace(PROTOCOL, seed=-1))
    with pytest.raises(FaultError, match=r"(?s)\bcode 1\b.*ValueError"):
        list(events_of(job, tmp_path))


def test_a_killed_agent_is_a_fault(tmp_path):
    before = children()
    events = events_of(job_for(tmp_path, original={}, pruned={}, protocol=LONG), tmp_path)
    next(events)
    (pid,) = children() - before
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(FaultError, match=r"\bsignal 9\b"):
        list(events)


def test_the_time_limit_ends_it(tmp_path):
    start = time.monotonic()
    with pytest.raises(FaultError, match=r"\b1 s\b"):
        list(events_of(job_for(tmp_path, original={}, pruned={}, protocol=LONG), tmp_path, limit_s=1))
    assert time.monotonic() - start < LONG.seconds


def test_leaving_early_ends_the_process(tmp_path):
    before = children()
    events = events_of(job_for(tmp_path, original={}, pruned={}, protocol=LONG), tmp_path)
    next(events)
    assert children() - before
    events.close()
    assert children() == before


def test_temporary_files_of_a_killed_agent_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    leaving = "import json, tempfile, time; print(json.dumps({'event': tempfile.mkdtemp()}), flush=True); time.sleep(9)"
    monkeypatch.setattr(process, "agent_command", lambda: [sys.executable, "-c", leaving])
    events = events_of(job_for(tmp_path, original={}, pruned={}), tmp_path)
    left = Path(next(events)["event"])
    assert left.is_relative_to(tmp_path)
    events.close()
    assert not list(tmp_path.glob("*catro-deploy*"))
    assert not left.exists()


def test_a_file_of_the_working_folder_is_not_taken_for_a_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("numpy.py").write_text("raise SystemExit('imported by mistake')")
    assert list(events_of(job_for(tmp_path, original={}, pruned={}), tmp_path))[-1]["event"] == "result"


HOST = """
import json, sys
from catro_deploy.agent.jobs import Order
from catro_deploy.agent.process import job_events
from catro_deploy.agent.wire import read
order = read(Order, json.load(open(sys.argv[1])))
try:
    for event in job_events(order.job, order.workspace):
        print(event["event"], flush=True)
except KeyboardInterrupt:
    from pathlib import Path
    print("left:", " ".join((task / "children").read_text() for task in Path("/proc/self/task").iterdir()).split())
"""


def test_ctrl_c_kills_the_agent(tmp_path):
    order = tmp_path / "order.json"
    job = job_for(tmp_path, original={}, pruned={}, protocol=LONG)
    order.write_text(json.dumps(to_json(Order(job, workspace(tmp_path)))))
    with subprocess.Popen([sys.executable, "-c", HOST, str(order)], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "progress\n"
        host.send_signal(signal.SIGINT)
        rest, _ = host.communicate(timeout=30)
    assert rest.splitlines()[-1] == "left: []"


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_the_agent_ends_when_its_host_was_killed(tmp_path):
    job = job_for(tmp_path, original={}, pruned={}, protocol=LONG)
    (tmp_path / "order.json").write_text(json.dumps(to_json(Order(job, workspace(tmp_path)))))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOST, str(tmp_path / "order.json")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as host:
        assert host.stdout.readline() == "progress\n"
        tasks = Path(f"/proc/{host.pid}/task").iterdir()
        (agent,) = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        host.kill()
    deadline = time.monotonic() + 20
    while is_running(agent) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(agent)
    assert list(temporary.iterdir()) == []


BUILDER = """
import json, sys, time
sys.stdin.readline()
for event, seconds in json.loads(sys.argv[1]):
    print(json.dumps({"event": event, "result": None}), flush=True)
    time.sleep(seconds)
"""


def agent_that_says(monkeypatch, *events: tuple[str, float]) -> None:
    """Replace the agent by one that emits these events and sleeps for the given seconds after each."""
    command = [sys.executable, "-c", BUILDER, json.dumps(events)]
    monkeypatch.setattr(process, "agent_command", lambda: command)


def test_building_does_not_count_in_the_time_limit(tmp_path, monkeypatch):
    agent_that_says(
        monkeypatch, ("building", 1.25), ("built", 0.0), ("building", 1.25), ("built", 0.0), ("result", 0.0)
    )
    events = events_of(job_for(tmp_path, original={}, pruned={}), tmp_path, limit_s=2.0)
    assert [event["event"] for event in events][-1] == "result"


def test_what_follows_the_building_counts(tmp_path, monkeypatch):
    agent_that_says(monkeypatch, ("building", 0.1), ("built", 60.0), ("result", 0.0))
    with pytest.raises(FaultError, match=r"\b1 s\b"):
        list(events_of(job_for(tmp_path, original={}, pruned={}), tmp_path, limit_s=1.0))


def test_building_has_a_limit_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "BUILD_LIMIT_S", 0.5)
    agent_that_says(monkeypatch, ("building", 60.0), ("result", 0.0))
    with pytest.raises(FaultError, match=r"\b0\.5 s\b") as caught:
        list(events_of(job_for(tmp_path, original={}, pruned={}), tmp_path))
    assert "level" in caught.value.hint
