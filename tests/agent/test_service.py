"""What the agent does with jobs for a host; tests/transports covers it over ssh."""

import signal
import subprocess
import sys

from catro_deploy.agent.service import serve
from catro_deploy.agent.store import LOCK, Store

NAME = 64 * "a"
# A job that has just begun: it holds its lock, and writes its process id a moment later.
BEGUN = """
import fcntl, os, sys, time
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    time.sleep(0.5)
    file.write(str(os.getpid()))
    file.flush()
    time.sleep(60)
"""


def test_a_job_that_has_just_started_is_ended_too(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_AGENT_HOME", str(tmp_path))
    folder = Store.here().job(NAME)
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", BEGUN, str(folder / LOCK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as job:
        assert job.stdout.readline() == b"locked\n"
        serve(["end", NAME], print)
        assert job.wait(timeout=30) == -signal.SIGKILL
    assert not folder.exists()
