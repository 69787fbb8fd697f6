"""A real sshd on loopback, and a real ssh that knows it as ``far``."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from catro_deploy.transports.registry import Device

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
MISSING = "" if Path(SSHD).is_file() and shutil.which("ssh") else "openssh-server is not installed"

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups 100
"""
CLIENT = """\
Host far
    HostName 127.0.0.1
    Port {port}
    IdentityFile {folder}/user_key
    UserKnownHostsFile {folder}/known_hosts
Host *
    IdentitiesOnly yes
    StrictHostKeyChecking yes
    GlobalKnownHostsFile none
    LogLevel ERROR
"""


@dataclass(frozen=True)
class Server:
    """One sshd; ``folder`` has its keys and configuration, and the client's."""

    process: subprocess.Popen[bytes]
    folder: Path
    port: int

    def device(self, home: Path, python: str = sys.executable) -> Device:
        """This machine as a device that keeps its files in ``home``."""
        return Device(name="far", ssh="far", target="x86-cpu", python=python, folder=str(home))

    def drop_connections(self) -> int:
        """Kill the processes that serve connections; return how many there were."""
        mine = children(self.process.pid)
        for pid in mine:
            os.kill(pid, signal.SIGKILL)
        return len(mine)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Start sshd; ``folder``/bin holds the ssh that knows it."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd's chroot until a user has logged in
    for name in ("host_key", "user_key"):
        make_key(folder / name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(SERVER.format(port=port, folder=folder))
    (folder / "ssh_config").write_text(CLIENT.format(port=port, folder=folder))
    know(folder, port, (folder / "host_key.pub").read_text())
    script(folder / "bin" / "ssh", f'exec {shutil.which("ssh")} -F {folder}/ssh_config "$@"')
    command, log = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], folder / "sshd.log"
    with log.open("wb") as said, subprocess.Popen(command, stderr=said) as process:
        try:
            wait_for(port, process, log)
            yield Server(process, folder, port)
        finally:
            process.kill()


def know(folder: Path, port: int, key: str) -> None:
    """Make the client accept ``key`` as the server's host key."""
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(key.split()[:2])}\n")


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def script(path: Path, line: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        else:
            return
    raise AssertionError(log.read_text())
