"""Jobs on a device far away, over a real sshd: as if it were near, and whatever happens on the way."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from catro_deploy.devices import Device
from catro_deploy.errors import DeviceError, FaultError, ModelError, StorageError
from catro_deploy.files import file_hash
from catro_deploy.transports import ssh
from catro_deploy.transports.agent_file import agent_file
from catro_deploy.transports.ssh import run_far
from tests.device.test_agent import PROTOCOL, job_for
from tests.transports.sshd import MISSING, Server, know, make_key, script, serving

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

FACTS = {"job": "facts", "runtime": "onnxruntime"}
LONG = PROTOCOL | {"seconds": 60.0, "limit_s": 60.0}


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(autouse=True)
def ssh_that_knows_it(server, monkeypatch):
    monkeypatch.setenv("PATH", f"{server.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def home(tmp_path) -> Path:
    """Where the device keeps its files."""
    return tmp_path / "far"


@pytest.fixture
def device(server, home) -> Device:
    return server.device(home)


class Far:
    """Runs jobs on a device and keeps what it notes."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.notes: list[str] = []

    def events(self, job: dict, folder: Path = Path(), limit_s: float = 120) -> Iterator[dict[str, Any]]:
        names = [model["file"] for model in job.get("models", {}).values()]
        sent = {key: value for key, value in job.items() if key != "folder"}
        return run_far(self.device, sent, folder, names, limit_s, self.notes.append)

    def result(self, job: dict, folder: Path = Path(), limit_s: float = 120) -> Any:
        return list(self.events(job, folder, limit_s))[-1]["result"]


@pytest.fixture
def far(device) -> Far:
    return Far(device)


def bench_job(folder: Path, **changes: Any) -> dict:
    return job_for(folder, original={"layers": 3}, pruned={}, **changes)


def processes_below(home: Path) -> list[int]:
    """Processes that the device runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(home).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def is_gone(home: Path) -> bool:
    deadline = time.monotonic() + 10
    while processes_below(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not processes_below(home)


# --- as if it were near ---------------------------------------------------------------------------------------------


def test_facts_of_a_device_that_has_nothing_but_python(far, home):
    facts = far.result(FACTS)
    assert facts["runtime"].startswith("onnxruntime ")
    assert [path.suffix for path in home.glob("agent-*")] == [".pyz"]
    assert not list((home / "jobs").iterdir())


def test_a_bench_far_away_gives_what_one_here_gives(far, tmp_path, home):
    *progress, last = far.events(bench_job(tmp_path), tmp_path)
    assert {event["event"] for event in progress} == {"progress"}
    assert last["result"]["original"]["n"] >= 100
    assert last["result"]["speedup"]["median"] > 1
    assert any(note.startswith("sending 0.0 MB to far") for note in far.notes)
    assert not list((home / "jobs").iterdir())
    assert is_gone(home)


def test_what_is_there_is_not_sent_again(far, tmp_path):
    far.result(bench_job(tmp_path), tmp_path)
    far.notes.clear()
    far.result(bench_job(tmp_path), tmp_path)
    assert far.notes == []


def test_the_agents_errors_keep_their_class(far, tmp_path, home):
    job = bench_job(tmp_path)
    job["models"]["pruned"]["metadata"] = {"plan_sha256": "another"}
    with pytest.raises(ModelError, match="of another network"):
        far.result(job, tmp_path)
    assert not list((home / "jobs").iterdir())


def test_texts_of_the_users_reach_no_shell(server, tmp_path):
    home = tmp_path / "a b'; touch pwned; '$(touch pwned)"
    far = Far(server.device(home))
    assert far.result(FACTS)["python"]
    assert list(home.glob("agent-*.pyz"))
    assert not list(tmp_path.rglob("pwned"))
    assert not (Path.home() / "pwned").exists()


def test_what_a_login_shell_prints_is_no_answer(server, home):
    noisy = script(server.folder / "noisy-python", f'echo "Welcome to {{far}}"; exec {sys.executable} "$@"')
    assert Far(server.device(home, str(noisy))).result(FACTS)["python"]


def test_the_agent_is_the_same_file_whenever_it_is_made():
    first = agent_file()
    agent_file.cache_clear()
    assert agent_file() == first
    assert len(first) < 100_000


# --- whatever happens on the way ------------------------------------------------------------------------------------


def test_a_lost_connection_does_not_end_the_job(far, server, tmp_path):
    events = far.events(bench_job(tmp_path, protocol=PROTOCOL | {"seconds": 4.0}), tmp_path)
    first = next(events)
    assert server.drop_connections() > 0
    *rest, last = events
    assert any("the connection to far was lost; the job goes on there" in note for note in far.notes)
    times = [event["seconds"] for event in [first, *rest]]
    assert times == sorted(set(times))  # none twice, none lost
    assert max(b - a for a, b in pairwise(times)) < 1.0
    assert last["result"]["pruned"]["n"] >= 100


def test_a_device_that_does_not_come_back_keeps_the_job(far, server, tmp_path, home, monkeypatch):
    monkeypatch.setattr(ssh, "PATIENCE_S", 1.0)
    events = far.events(bench_job(tmp_path, protocol=PROTOCOL | {"seconds": 6.0}), tmp_path)
    next(events)
    known = (server.folder / "known_hosts").read_text()
    (server.folder / "known_hosts").write_text("")
    server.drop_connections()
    with pytest.raises(DeviceError, match="was lost, and could not be made again for 1 s") as caught:
        list(events)
    assert "Run the same command again" in caught.value.hint
    (server.folder / "known_hosts").write_text(known)
    assert len(list((home / "jobs").iterdir())) == 1
    far.notes.clear()
    result = far.result(bench_job(tmp_path, protocol=PROTOCOL | {"seconds": 6.0}), tmp_path)
    assert far.notes[0].startswith("far has this job since ")
    assert result["original"]["n"] >= 100
    assert not list((home / "jobs").iterdir())


HOST = """
import json, sys
from pathlib import Path
from catro_deploy.devices import Device
from catro_deploy.transports.ssh import run_far
device, job, folder = json.loads(sys.argv[1])
names = [model["file"] for model in job["models"].values()]
for event in run_far(Device(**device), job, Path(folder), names, 100, lambda text: None):
    print(event["event"], flush=True)
"""


def started_host(far: Far, job: dict, folder: Path) -> subprocess.Popen[str]:
    sent = {key: value for key, value in job.items() if key != "folder"}
    given = json.dumps([far.device.model_dump(), sent, str(folder)])
    process = subprocess.Popen([sys.executable, "-c", HOST, given], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "progress\n"
    return process


def test_what_a_killed_host_began_is_picked_up(far, tmp_path):
    job = bench_job(tmp_path, protocol=PROTOCOL | {"seconds": 5.0})
    with started_host(far, job, tmp_path) as host:
        host.kill()
    began = time.monotonic()
    assert far.result(job, tmp_path)["original"]["n"] >= 100
    assert any("far has this job since " in note for note in far.notes)
    assert time.monotonic() - began < 15


def test_ctrl_c_ends_the_job_there_too(far, tmp_path, home):
    with started_host(far, bench_job(tmp_path, protocol=LONG), tmp_path) as host:
        host.send_signal(signal.SIGINT)
        host.communicate(timeout=30)
    assert is_gone(home)
    assert not list((home / "jobs").iterdir())


def test_leaving_early_ends_the_job(far, tmp_path, home):
    events = far.events(bench_job(tmp_path, protocol=LONG), tmp_path)
    next(events)
    assert processes_below(home)
    events.close()
    assert is_gone(home)


def test_an_agent_that_is_killed_is_told(far, tmp_path, home):
    events = far.events(bench_job(tmp_path, protocol=LONG), tmp_path)
    next(events)
    workers = [pid for pid in processes_below(home) if b"\0work\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in workers:
        os.killpg(pid, signal.SIGKILL)
    with pytest.raises(FaultError, match="The job was killed on the device"):
        list(events)


def test_the_time_limit_counts_there(far, tmp_path, home):
    with pytest.raises(FaultError, match="did not end within 1 s"):
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


def test_half_of_a_file_is_refused_and_what_was_whole_stays(far, tmp_path, home):
    far.result(FACTS)
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    whole.write_bytes(b"w" * 1000)
    torn.write_bytes(b"t" * 100_000)
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w") as tar:
        for path in (whole, torn):
            tar.add(path, file_hash(path))
    with (
        ssh._connected(far.device, agent_file(), far.notes.append) as reached,
        pytest.raises(FaultError, match="not all of them"),
    ):
        reached.call("put", stdin=sent.getvalue()[:50_000])
    assert [path.name for path in (home / "files").iterdir()] == [file_hash(whole)]


def test_a_file_with_another_content_is_refused(far, tmp_path, home):
    far.result(FACTS)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"damaged on the way")
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w") as tar:
        tar.add(damaged, 64 * "0")
    with (
        ssh._connected(far.device, agent_file(), far.notes.append) as reached,
        pytest.raises(FaultError, match="arrived damaged"),
    ):
        reached.call("put", stdin=sent.getvalue())
    assert not list((home / "files").iterdir())


@pytest.mark.parametrize("content", [b"", agent_file()[:1000], b"print('some other program')"])
def test_a_damaged_agent_is_sent_again(far, home, content):
    far.result(FACTS)
    (agent,) = home.glob("agent-*.pyz")
    agent.write_bytes(content)
    assert far.result(FACTS)["python"]


def test_a_full_disk_is_told(server, home, tmp_path):
    """Files may not grow beyond 96 kB there: one that is sent, or the answer, in which each inference is a number."""
    limited = script(server.folder / "limited-python", f'ulimit -f 192; exec {sys.executable} "$@"')
    far = Far(server.device(home, str(limited)))
    too_much = PROTOCOL | {"seconds": 3.0}
    for size, protocol in (({"channels": 128, "layers": 2}, PROTOCOL), ({}, too_much)):
        job = job_for(tmp_path, original=size, pruned={}, protocol=protocol)
        with pytest.raises(
            StorageError, match=r"could not be written: File too large; \d+ MiB are free there"
        ) as caught:
            far.result(job, tmp_path)
        assert "--folder" in caught.value.hint
    assert is_gone(home)


def test_a_disk_too_full_for_the_agent_is_told(server, home):
    limited = script(server.folder / "limited-python", f'ulimit -f 8; exec {sys.executable} "$@"')
    with pytest.raises(DeviceError, match=r"agent could not be written to .*: File too large") as caught:
        Far(server.device(home, str(limited))).result(FACTS)
    assert "Traceback" not in caught.value.problem


def test_a_folder_that_cannot_be_made_is_told(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DeviceError, match=r"far \(far\) ended a call with code 1(.|\n)*Not a directory"):
        Far(server.device(tmp_path / "file" / "far")).result(FACTS)


# --- devices that cannot be reached ---------------------------------------------------------------------------------


def refusal(device: Device) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        Far(device).result(FACTS)
    assert caught.value.exit_code == 1
    assert caught.value.hint
    return caught.value


def test_an_unknown_host_key_is_never_taken(server, device):
    known = (server.folder / "known_hosts").read_text()
    (server.folder / "known_hosts").write_text("")
    try:
        error = refusal(device)
    finally:
        (server.folder / "known_hosts").write_text(known)
    assert "ssh does not know its host key" in error.problem
    assert error.hint == "Log in once and compare the key: ssh far"


def test_a_changed_host_key_is_refused(server, device, tmp_path):
    known = (server.folder / "known_hosts").read_text()
    make_key(tmp_path / "other")
    know(server.folder, server.port, (tmp_path / "other.pub").read_text())
    try:
        error = refusal(device)
    finally:
        (server.folder / "known_hosts").write_text(known)
    assert "Its host key is not the one that ssh knows" in error.problem
    assert "ssh-keygen -R" in error.hint


def test_a_key_that_does_not_fit(server, device, tmp_path):
    right = (server.folder / "user_key").read_bytes()
    make_key(tmp_path / "wrong")
    (server.folder / "user_key").write_bytes((tmp_path / "wrong").read_bytes())
    try:
        error = refusal(device)
    finally:
        (server.folder / "user_key").write_bytes(right)
    assert "It does not let you in" in error.problem
    assert "ssh-copy-id far" in error.hint


def test_nobody_listens(device):
    error = refusal(device.model_copy(update={"ssh": "ssh://127.0.0.1:1"}))
    assert "Nothing answers at its ssh port" in error.problem


def test_a_name_that_nobody_knows(device):
    error = refusal(device.model_copy(update={"ssh": "no-such-host.invalid"}))
    assert "Nobody knows this host's name" in error.problem


def test_there_is_no_ssh(device, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    error = refusal(device)
    assert "no ssh" in error.problem
    assert "openssh-client" in error.hint


def test_there_is_no_python(server, home):
    error = refusal(server.device(home, "/nowhere/python3"))
    assert "far (far) has no Python at '/nowhere/python3'" in error.problem
    assert "--python" in error.hint


def test_python_is_too_old(server, home):
    old = script(
        server.folder / "old-python", "echo 'catro-deploy needs Python 3.8 or later; this is 3.6.9' >&2; exit 1"
    )
    assert "this is 3.6.9" in refusal(server.device(home, str(old))).problem
