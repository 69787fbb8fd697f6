"""Connections that are cut again and again, and a device that comes back with another host key."""

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from catro_deploy.errors import DeviceError
from catro_deploy.transports import connection
from catro_deploy.transports.agent_file import agent_file
from catro_deploy.transports.connection import connected
from catro_deploy.transports.ssh import _Far
from tests.agent.test_agent import PROTOCOL
from tests.transports.sshd import CLIENT, MISSING, Server, know, make_key
from tests.transports.test_ssh import bench_job

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("ssh_that_knows_it")]

CUT_BYTES = 60_000


@contextmanager
def cut_every(server: Server, most: int) -> Iterator[list[int]]:
    """Make the client reach ``server`` through a relay that closes connections after ``most`` bytes; yield counts."""
    counts: list[int] = []
    known, config = (server.folder / "known_hosts").read_text(), (server.folder / "ssh_config").read_text()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = threading.Thread(target=_serve, args=(listener, server.port, most, counts))
        serving.start()
        know(server.folder, port, (server.folder / "host_key.pub").read_text())
        (server.folder / "ssh_config").write_text(CLIENT.format(port=port, folder=server.folder))
        try:
            yield counts
        finally:
            (server.folder / "known_hosts").write_text(known)
            (server.folder / "ssh_config").write_text(config)
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def _serve(listener: socket.socket, port: int, most: int, counts: list[int]) -> None:
    with ThreadPoolExecutor(100) as pool, suppress(OSError):  # the listener is shut down at the end
        while True:
            near, _ = listener.accept()
            counts.append(0)
            pool.submit(_relay, near, port, most, counts, len(counts) - 1)


def _relay(near: socket.socket, port: int, most: int, counts: list[int], which: int) -> None:
    with near, socket.create_connection(("127.0.0.1", port)) as far:
        back = threading.Thread(target=_pump, args=(far, near, None, counts, which))
        back.start()
        _pump(near, far, most, counts, which)
        back.join()


def _pump(source: socket.socket, sink: socket.socket, most: int | None, counts: list[int], which: int) -> None:
    with suppress(OSError):
        while content := source.recv(4096):
            sink.sendall(content)
            if most is not None:
                counts[which] += len(content)
                if counts[which] >= most:
                    break
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_uploads_that_are_cut_again_and_again_are_continued(device, home, server, tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "FIRST_PAUSE_S", 0.05)
    content = os.urandom(150_000)
    (tmp_path / "model").write_bytes(content)
    digest, notes = hashlib.sha256(content).hexdigest(), []
    with cut_every(server, CUT_BYTES) as counts, connected(device, agent_file(), notes.append) as reached:
        _Far(reached).send(tmp_path, {"model": digest})
    assert (home / "files" / digest).read_bytes() == content
    assert len(agent_file()) > CUT_BYTES  # so that the agent is cut off, too
    assert max(counts) < CUT_BYTES + 4096
    assert len(counts) >= 4
    assert not list(home.rglob(".*.part"))


@pytest.mark.slow
def test_a_changed_host_key_ends_the_wait(far, server, tmp_path):
    events = far.events(bench_job(tmp_path, protocol=replace(PROTOCOL, seconds=4.0)), tmp_path)
    next(events)
    known = (server.folder / "known_hosts").read_text()
    make_key(tmp_path / "other")
    know(server.folder, server.port, (tmp_path / "other.pub").read_text())
    began = time.monotonic()
    server.drop_connections()
    try:
        with pytest.raises(DeviceError, match="host key") as caught:
            list(events)
    finally:
        (server.folder / "known_hosts").write_text(known)
    assert time.monotonic() - began < connection.PATIENCE_S / 10
    assert "ssh-keygen -R" in caught.value.hint
    assert caught.value.hint.splitlines()[-1].startswith("The job continues there.")
    assert far.result(bench_job(tmp_path, protocol=replace(PROTOCOL, seconds=4.0)), tmp_path).original.n >= 100


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a name")
def test_a_user_without_a_name_is_named_by_number():
    code = "from catro_deploy.transports.ssh import _user; import os; os.setuid(54321); print(_user())"
    nameless = {key: value for key, value in os.environ.items() if key not in ("LOGNAME", "USER", "LNAME", "USERNAME")}
    done = subprocess.run([sys.executable, "-c", code], env=nameless, capture_output=True, text=True, check=True)
    assert done.stdout == "user 54321\n"
