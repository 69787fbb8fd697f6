"""Jobs on a remote device over a real sshd: as on this machine, and with whatever can happen on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catro_deploy.agent.jobs import BenchJob
from catro_deploy.agent.wire import to_json
from catro_deploy.errors import DeviceError, FaultError, ModelError
from catro_deploy.transports import connection
from catro_deploy.transports.agent_file import agent_file
from tests.agent.test_agent import PROTOCOL, job_for, with_pruned
from tests.agent.test_profile import job_for as profile_job
from tests.transports.far import FACTS, Far, is_gone, processes_below
from tests.transports.sshd import MISSING, script

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("ssh_that_knows_it")]

LONG = replace(PROTOCOL, seconds=60.0, limit_s=60.0)


def bench_job(folder: Path, **changes: Any) -> BenchJob:
    return job_for(folder, original={"layers": 3}, pruned={}, **changes)


# --- as on this machine ---------------------------------------------------------------------------------------------


def test_facts_of_a_device_that_has_nothing_but_python(far, home):
    facts = far.result(FACTS)
    assert facts.runtime.startswith("onnxruntime ")
    assert [path.suffix for path in home.glob("agent-*")] == [".pyz"]
    assert not list((home / "jobs").iterdir())


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_a_bench_far_away_gives_what_one_here_gives(far, tmp_path, home, runtime):
    *progress, last = far.events(bench_job(tmp_path, runtime=runtime), tmp_path)
    assert {event["event"] for event in progress} == {"progress"}
    assert last["result"]["original"]["n"] >= 100
    assert last["result"]["speedup"]["median"] > 1
    assert last["result"]["facts"]["runtime"].startswith(f"{runtime} ")
    assert any(note.startswith("sending 0.0 MB to far") for note in far.notes)
    assert not list((home / "jobs").iterdir())
    assert is_gone(home)


def test_a_profile_by_openvino_far_away(far, tmp_path, home):
    """Nothing is left of the job on the device."""
    *samples, last = far.events(profile_job(tmp_path, {"a": 1, "b": 2}, ("b",), "openvino"), tmp_path)
    assert [sample["name"] for sample in samples] == ["a", "b"]
    assert all(node["rounds_us"] for node in samples[0]["nodes"])
    assert last["result"]["providers"] == ["CPU"]
    assert not list((home / "jobs").iterdir())


def test_what_is_there_is_not_sent_again(far, tmp_path):
    far.result(bench_job(tmp_path), tmp_path)
    far.notes.clear()
    far.result(bench_job(tmp_path), tmp_path)
    assert far.notes == []


def test_the_agents_errors_keep_their_class(far, tmp_path, home):
    job = with_pruned(bench_job(tmp_path), metadata={"plan_sha256": "another"})
    with pytest.raises(ModelError, match=r"plan_sha256.*'another'"):
        far.result(job, tmp_path)
    assert not list((home / "jobs").iterdir())


def test_texts_of_the_users_reach_no_shell(server, tmp_path):
    home = tmp_path / "a b'; touch pwned; '$(touch pwned)"
    far = Far(server.device(home))
    assert far.result(FACTS).device.python
    assert list(home.glob("agent-*.pyz"))
    assert not list(tmp_path.rglob("pwned"))
    assert not (Path.home() / "pwned").exists()


def test_python_may_be_named_from_the_home_there(server, home):
    python = f"~/{os.path.relpath(sys.executable, Path.home())}"
    assert Far(server.device(home, python)).result(FACTS).device.python


@pytest.mark.parametrize("end", [r"\n", ""])
def test_what_a_login_shell_prints_is_no_answer(server, home, end):
    noisy = script(server.folder / "noisy-python", f'printf "Welcome to {{far}}{end}"; exec {sys.executable} "$@"')
    assert Far(server.device(home, str(noisy))).result(FACTS).device.python


def test_the_agent_is_the_same_file_whenever_it_is_made():
    first = agent_file()
    agent_file.cache_clear()
    assert agent_file() == first
    assert len(first) < 110_000


# --- whatever can happen on the way ---------------------------------------------------------------------------------


def test_a_lost_connection_does_not_end_the_job(far, server, tmp_path, home):
    events = far.events(bench_job(tmp_path, protocol=replace(PROTOCOL, seconds=4.0)), tmp_path)
    first = next(events)
    (written,) = (home / "jobs").glob("*/events.jsonl")
    (tmp_path / "written").hardlink_to(written)  # the job's folder is deleted at the end
    assert server.drop_connections() > 0
    *rest, last = events
    assert any("the connection to far was lost; the job continues there" in note for note in far.notes)
    recorded = [json.loads(line) for line in (tmp_path / "written").read_text().splitlines()]
    assert [first, *rest, last] == recorded  # none twice, none lost
    assert last["result"]["pruned"]["n"] >= 100


def test_a_device_that_does_not_come_back_keeps_the_job(far, server, tmp_path, home, monkeypatch):
    monkeypatch.setattr(connection, "PATIENCE_S", 1.0)
    events = far.events(bench_job(tmp_path, protocol=replace(PROTOCOL, seconds=6.0)), tmp_path)
    next(events)
    config = (server.folder / "ssh_config").read_text()
    (server.folder / "ssh_config").write_text(config.replace(f"Port {server.port}", "Port 1"))
    server.drop_connections()
    with pytest.raises(DeviceError, match=r"lost.* 1 s") as caught:
        list(events)
    assert "Run the same command again" in caught.value.hint
    (server.folder / "ssh_config").write_text(config)
    assert len(list((home / "jobs").iterdir())) == 1
    far.notes.clear()
    result = far.result(bench_job(tmp_path, protocol=replace(PROTOCOL, seconds=6.0)), tmp_path)
    assert far.notes[0].startswith("far has been running this job since ")
    assert result.original.n >= 100
    assert not list((home / "jobs").iterdir())


HOST = """
import json, sys
from pathlib import Path
from catro_deploy.agent.jobs import Job
from catro_deploy.agent.wire import read
from catro_deploy.cli.stopping import stop_on_signals
from catro_deploy.transports.registry import Device
from catro_deploy.transports.ssh import run_far
stop_on_signals()
device, job, folder = json.loads(sys.argv[1])
job = read(Job, job)
names = [model.file for model in job.models.values()]
for event in run_far(Device(**device), job, Path(folder), names, 100, lambda text: None):
    print(event["event"], flush=True)
"""


def started_host(far: Far, job: BenchJob, folder: Path) -> subprocess.Popen[str]:
    given = json.dumps([far.device.model_dump(), to_json(job), str(folder)])
    process = subprocess.Popen([sys.executable, "-c", HOST, given], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "progress\n"
    return process


def test_what_a_killed_host_began_is_picked_up(far, tmp_path):
    job = bench_job(tmp_path, protocol=replace(PROTOCOL, seconds=5.0))
    with started_host(far, job, tmp_path) as host:
        host.kill()
    assert far.result(job, tmp_path).original.n >= 100
    assert any("far has been running this job since " in note for note in far.notes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_job_there_too(far, tmp_path, home, number):
    with started_host(far, bench_job(tmp_path, protocol=LONG), tmp_path) as host:
        host.send_signal(number)
        host.communicate(timeout=120)
    assert is_gone(home)
    assert not list((home / "jobs").iterdir())


def test_leaving_early_ends_the_job(far, tmp_path, home):
    events = far.events(bench_job(tmp_path, protocol=LONG), tmp_path)
    next(events)
    assert processes_below(home)
    assert list((home / "jobs").glob("*/tmp/catro-deploy-agent-*"))  # so that they are deleted with the job
    events.close()
    assert is_gone(home)
    assert not list((home / "jobs").iterdir())


# subprocess.run does not wait for ssh after Ctrl-C.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_job_that_is_stopped_while_it_starts_is_ended(far, tmp_path, home):
    def stop() -> None:
        while not list((home / "jobs").glob("*/log.txt")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(KeyboardInterrupt):
        next(far.events(bench_job(tmp_path, protocol=LONG), tmp_path))
    stopping.join()
    assert is_gone(home)
    assert not list((home / "jobs").iterdir())


def test_an_agent_that_is_killed_is_reported(far, tmp_path, home):
    events = far.events(bench_job(tmp_path, protocol=LONG), tmp_path)
    next(events)
    workers = [pid for pid in processes_below(home) if b"\0work\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in workers:
        os.killpg(pid, signal.SIGKILL)
    with pytest.raises(FaultError, match="killed") as caught:
        list(events)
    assert caught.value.hint.startswith("Run the same command again.")


def test_the_time_limit_counts_there(far, tmp_path, home):
    with pytest.raises(FaultError, match=r"\b1 s\b"):
        far.result(bench_job(tmp_path, protocol=LONG), tmp_path, limit_s=1)
    assert is_gone(home)


def test_two_hosts_do_not_measure_at_once(far, device, tmp_path):
    other = Far(device)
    (tmp_path / "other").mkdir()
    first = far.events(bench_job(tmp_path, protocol=LONG), tmp_path)
    next(first)
    second = other.events(bench_job(tmp_path / "other"), tmp_path / "other")
    waiting = next(second)
    assert waiting["event"] == "note"
    assert waiting["text"].startswith("waiting: ")
    assert waiting["text"].endswith("is measuring on the device")
    first.close()
    assert list(second)[-1]["event"] == "result"
