import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catro_deploy.agent.process import run_job
from catro_deploy.errors import FaultError, ModelError
from tests.agent.test_agent import PROTOCOL, job_for

LONG = PROTOCOL | {"seconds": 60.0, "limit_s": 60.0}


def children() -> set[int]:
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_progress_then_the_result(tmp_path):
    events = list(run_job(job_for(tmp_path, original={"layers": 3}, pruned={})))
    assert [event["event"] for event in events[:-1]] == ["progress"] * (len(events) - 1)
    assert events[-1]["result"]["original"]["n"] >= 100
    assert json.dumps(events[-1], allow_nan=False)


def test_the_agents_error_is_raised_here_with_its_class(tmp_path):
    job = job_for(tmp_path, original={}, pruned={})
    job["models"]["pruned"]["file"] = "gone.onnx"
    with pytest.raises(ModelError, match=r"gone\.onnx") as caught:
        list(run_job(job))
    assert "catro-deploy export" in caught.value.hint


def test_a_crash_is_explained_by_the_last_lines_of_stderr(tmp_path):
    job = job_for(tmp_path, original={}, pruned={})
    del job["protocol"]
    with pytest.raises(FaultError, match=r"ended with code 1 and no result(.|\n)*KeyError: 'protocol'"):
        list(run_job(job))


def test_a_killed_agent_is_a_fault(tmp_path):
    before = children()
    events = run_job(job_for(tmp_path, original={}, pruned={}, protocol=LONG))
    next(events)
    (pid,) = children() - before
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(FaultError, match="was killed by signal 9"):
        list(events)


def test_the_time_limit_ends_it(tmp_path):
    start = time.monotonic()
    with pytest.raises(FaultError, match="did not end within 1 s"):
        list(run_job(job_for(tmp_path, original={}, pruned={}, protocol=LONG), limit_s=1))
    assert time.monotonic() - start < 15


def test_leaving_early_ends_the_process(tmp_path):
    before = children()
    events = run_job(job_for(tmp_path, original={}, pruned={}, protocol=LONG))
    next(events)
    assert children() - before
    events.close()
    assert children() == before


def test_a_file_of_the_working_folder_is_not_taken_for_a_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("numpy.py").write_text("raise SystemExit('imported by mistake')")
    assert list(run_job(job_for(tmp_path, original={}, pruned={})))[-1]["event"] == "result"


HOST = """
import json, sys
from catro_deploy.agent.process import run_job
try:
    for event in run_job(json.load(open(sys.argv[1]))):
        print(event["event"], flush=True)
except KeyboardInterrupt:
    from pathlib import Path
    print("left:", " ".join((task / "children").read_text() for task in Path("/proc/self/task").iterdir()).split())
"""


def test_ctrl_c_kills_the_agent(tmp_path):
    job = tmp_path / "job.json"
    job.write_text(json.dumps(job_for(tmp_path, original={}, pruned={}, protocol=LONG)))
    with subprocess.Popen([sys.executable, "-c", HOST, str(job)], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "progress\n"
        host.send_signal(signal.SIGINT)
        rest, _ = host.communicate(timeout=30)
    assert rest.splitlines()[-1] == "left: []"
