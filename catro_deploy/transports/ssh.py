"""Jobs on another machine, run with the OpenSSH client and the user's configuration, keys and known hosts."""

import getpass
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catro_deploy.agent.jobs import Job, StartRequest
from catro_deploy.agent.wire import to_json
from catro_deploy.errors import DeviceError
from catro_deploy.files import file_hash, text_hash
from catro_deploy.transports.agent_file import agent_file
from catro_deploy.transports.claims import Claim, claimed
from catro_deploy.transports.connection import Connection, GivenUp, Lost, NoAgent, connected
from catro_deploy.transports.registry import Device

__all__ = ["run_far"]

ENDING_S = 15


def run_far(
    device: Device,
    job: Job[Any],
    folder: Path,
    files: Sequence[str],
    limit_s: float,
    note: Callable[[str], None],
) -> Generator[dict[str, Any], None, None]:
    """Run ``job`` with the agent on ``device`` and the ``files`` of ``folder``; yield its events as JSON.

    The last one is the result.

    Raises:
        DeviceError: the device cannot be reached, or no longer; in the latter case the job continues there.
        CatroError: the agent reported it.
    """
    hashes = {file: file_hash(folder / file) for file in files}
    work = text_hash(json.dumps([to_json(job), hashes, device.ssh, device.folder], sort_keys=True))
    asked = StartRequest(job, hashes, limit_s, f"{_user()} on {socket.gethostname()}")
    with connected(device, agent_file(job.runtime), note) as connection:
        far = _Far(connection)
        try:
            far.send(folder, hashes)
            with claimed(work) as claim:
                yield from far.do(claim, asked)
        except GivenUp as lost:
            raise DeviceError(*lost.args) from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # containers run with user ids that have no name
        return f"user {os.getuid()}"


@dataclass(frozen=True)
class _Far:
    """The agent at the other end of ``connection``."""

    connection: Connection

    def send(self, folder: Path, hashes: Mapping[str, str]) -> None:
        """Upload the agent and all missing files; an interrupted upload continues."""
        files = {digest: folder / file for file, digest in hashes.items()}
        self.connection.patiently(lambda: self._send(files))

    def _send(self, files: Mapping[str, Path]) -> None:
        far, wanted = self.connection, json.dumps(sorted(files)).encode()
        try:
            lacking: dict[str, int] = far.run("lacking", far.token, stdin=wanted)
        except NoAgent as missing:
            far.arrived = missing.arrived
            far.install(missing.arrived)
            lacking = far.run("lacking", far.token, stdin=wanted)
        sizes = {digest: path.stat().st_size for digest, path in files.items()}
        remaining = sum(sizes[digest] - arrived for digest, arrived in lacking.items())
        if lacking and not any(lacking.values()):
            far.note(f"sending {remaining / 1e6:.1f} MB to {far.device.name}")
        far.arrived = len(far.agent) + sum(sizes.values()) - remaining
        for digest, arrived in lacking.items():
            with files[digest].open("rb", buffering=0) as file:
                file.seek(arrived)
                far.run("put", far.token, digest, str(sizes[digest]), str(arrived), stdin=file)

    def do(self, claim: Claim, asked: StartRequest) -> Iterator[dict[str, Any]]:
        """Start a job, or find it, and yield its events; end it unless the connection is lost for good."""
        far, request = self.connection, json.dumps(to_json(asked)).encode()
        try:
            since = far.patiently(lambda: far.run("start", claim.name, stdin=request))["since"]
            if since is not None:
                began = time.strftime("%H:%M:%S", time.localtime(since))
                far.note(f"{far.device.name} has been running this job since {began}: following it")
            yield from self._follow(claim.name)
        except GivenUp:
            raise
        except BaseException:
            self._end(claim)
            raise
        self._end(claim)

    def _follow(self, name: str) -> Iterator[dict[str, Any]]:
        """The events of a job, across losses of the connection."""
        far, seen = self.connection, [0]
        while True:
            for event in far.patiently(lambda: self._begin_following(name, seen)):
                yield event
                if event["event"] == "result":
                    return
            far.note(f"the connection to {far.device.name} was lost; the job continues there")

    def _begin_following(self, name: str, seen: list[int]) -> Iterator[dict[str, Any]]:
        """Events up to the next loss of the connection; waits for the first one here, so that a loss is noticed."""
        events = self.connection.events(name, seen)
        try:
            first = next(events)
        except StopIteration:
            raise Lost("") from None

        def rest() -> Iterator[dict[str, Any]]:
            yield first
            with suppress(Lost):
                yield from events

        return rest()

    def _end(self, claim: Claim) -> None:
        """Stop a job and forget it, if possible: failures here have been reported already."""
        with suppress(Lost, DeviceError, subprocess.TimeoutExpired):
            self.connection.run("end", claim.name, timeout_s=ENDING_S)
            claim.drop()
