"""The agent on another machine, by the OpenSSH client: the user's configuration, keys and known hosts count as ever.

No text of a user's reaches a shell unquoted, and host keys are checked as the user's ssh checks them.
"""

import getpass
import hashlib
import json
import shlex
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from catro_deploy.agent.jobs import Job, StartRequest
from catro_deploy.agent.process import as_error
from catro_deploy.agent.wire import to_json
from catro_deploy.errors import DeviceError
from catro_deploy.files import file_hash, text_hash
from catro_deploy.transports.agent_file import agent_file
from catro_deploy.transports.claims import Claim, claimed
from catro_deploy.transports.refusals import explained
from catro_deploy.transports.registry import Device

__all__ = ["run_far"]

# A dead connection is noticed after 15 s.
OPTIONS = ("-T", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
NO_CONNECTION = 255
# How long a lost connection is tried again, and the pauses between.
PATIENCE_S, FIRST_PAUSE_S, LONGEST_PAUSE_S = 900.0, 1.0, 30.0
# Of a path below which ssh can make the socket that its calls share.
LONGEST_SOCKET_FOLDER = 40
ENDING_S = 15
# Puts the agent into its place if all of it has arrived. Arguments: folder, name, SHA-256.
INSTALL = """\
import hashlib, os, sys, tempfile
if sys.version_info < (3, 8): sys.exit("catro-deploy needs Python 3.8 or later; this is " + sys.version.split()[0])
folder, name, digest = sys.argv[1:]
content = sys.stdin.buffer.read()
if hashlib.sha256(content).hexdigest() != digest: sys.exit("the agent did not arrive whole")
try:
    os.makedirs(folder, exist_ok=True)
    descriptor, part = tempfile.mkstemp(".part", "." + name, folder)
    try:
        with open(descriptor, "wb") as file: file.write(content)
        os.replace(part, os.path.join(folder, name))
    except OSError:
        os.remove(part)
        raise
except OSError as error:
    sys.exit("The agent could not be written to " + folder + ": " + error.strerror)
"""


def run_far(
    device: Device,
    job: Job[Any],
    folder: Path,
    files: Sequence[str],
    limit_s: float,
    note: Callable[[str], None],
) -> Generator[dict[str, Any], None, None]:
    """Have the agent on ``device`` do ``job`` with the ``files`` of ``folder``; yield its events as JSON.

    The last one is the result.

    Raises:
        DeviceError: the device cannot be reached, or not any more: then the job goes on there.
        CatroError: the agent reported it.
    """
    hashes = {file: file_hash(folder / file) for file in files}
    work = text_hash(json.dumps([to_json(job), hashes, device.ssh, device.folder], sort_keys=True))
    with _connected(device, agent_file(job.runtime), note) as far:
        far.send(folder, hashes)
        asked = StartRequest(job, hashes, limit_s, f"{getpass.getuser()} on {socket.gethostname()}")
        with claimed(work) as claim:
            since = far.call("start", claim.name, stdin=json.dumps(to_json(asked)).encode())["since"]
            if since is not None:
                began = time.strftime("%H:%M:%S", time.localtime(since))
                note(f"{device.name} has this job since {began}: going on with it")
            try:
                yield from far.follow(claim.name)
            except _GivenUp as lost:
                raise DeviceError(*lost.args) from None
            except BaseException:
                far.end(claim)
                raise
            far.end(claim)


class _Lost(Exception):  # noqa: N818 - not the user's error: it is tried again
    """The connection failed; the argument is what ssh said."""


class _NoAgent(Exception):  # noqa: N818 - as above
    """The agent is not on the device yet, or damaged; the argument is what Python said."""


class _GivenUp(Exception):  # noqa: N818 - as above
    """The connection could not be made again: problem and hint."""


@contextmanager
def _connected(device: Device, agent: bytes, note: Callable[[str], None]) -> Iterator["_Far"]:
    """Calls to ``device`` share one connection as long as the block lasts."""
    if shutil.which("ssh") is None:
        raise DeviceError("This machine has no ssh command.", "Install OpenSSH: sudo apt-get install openssh-client")
    with tempfile.TemporaryDirectory(prefix="cd-") as sockets:
        shared = len(sockets) <= LONGEST_SOCKET_FOLDER
        control = ("-o", "ControlMaster=auto", "-o", f"ControlPath={sockets}/%C", "-o", "ControlPersist=60")
        ssh = ("ssh", *OPTIONS, *(control if shared else ()))
        try:
            yield _Far(device, ssh, agent, note)
        finally:
            if shared:
                with suppress(subprocess.TimeoutExpired):
                    command = [*ssh, "-O", "exit", device.ssh]
                    subprocess.run(command, capture_output=True, check=False, timeout=ENDING_S)


@dataclass
class _Far:
    """The ``agent`` on ``device``, called by the command ``ssh``."""

    device: Device
    ssh: tuple[str, ...]
    agent: bytes
    note: Callable[[str], None]
    reached: bool = False

    def send(self, folder: Path, hashes: Mapping[str, str]) -> None:
        """See to it that the agent and all files are there."""
        wanted = json.dumps(sorted(set(hashes.values()))).encode()
        try:
            lacking = set(self.call("lacking", stdin=wanted))
        except _NoAgent:
            self._install()
            try:
                lacking = set(self.call("lacking", stdin=wanted))
            except _NoAgent as error:
                raise explained(self.device, 1, str(error)) from None
        if lacking:
            files = {digest: folder / file for file, digest in hashes.items() if digest in lacking}
            with tempfile.TemporaryFile() as archive:
                with tarfile.open(fileobj=archive, mode="w") as tar:
                    for digest, path in files.items():
                        tar.add(path, digest, filter=_plain)
                self.note(f"sending {archive.tell() / 1e6:.1f} MB to {self.device.name}")
                self.call("put", stdin=archive)

    def call(self, *verb: str, stdin: bytes | IO[bytes] = b"") -> Any:  # noqa: ANN401 - what JSON can hold
        """The result of one verb; over a connection that was there before, tried again if it is lost."""
        return self._patiently(lambda: self._call(self._agent(*verb), stdin))

    def follow(self, name: str) -> Iterator[dict[str, Any]]:
        """The events of a job, wherever the connection is lost on the way."""
        seen: list[int] = [0]
        while True:
            events = self._patiently(lambda: self._begin_following(name, seen))
            for event in events:
                yield event
                if event["event"] == "result":
                    return
            self.note(f"the connection to {self.device.name} was lost; the job goes on there")

    def end(self, claim: Claim) -> None:
        """Stop a job and forget it, if that is possible: what fails here was reported before."""
        with suppress(_Lost, _NoAgent, DeviceError, subprocess.TimeoutExpired):
            self._call(self._agent("end", claim.name), b"", timeout_s=ENDING_S)
            claim.drop()

    def _begin_following(self, name: str, seen: list[int]) -> Iterator[dict[str, Any]]:
        """Events up to the next loss of the connection; the first is waited for here, so that a loss is noticed."""
        events = self._events(name, seen)
        try:
            first = next(events)
        except StopIteration:
            raise _Lost("") from None

        def rest() -> Iterator[dict[str, Any]]:
            yield first
            with suppress(_Lost):
                yield from events

        return rest()

    def _events(self, name: str, seen: list[int]) -> Iterator[dict[str, Any]]:
        command = self._agent("follow", name)
        with tempfile.TemporaryFile() as stderr:
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    with suppress(BrokenPipeError), process.stdin:
                        process.stdin.write(f"{seen[0]}\n".encode())
                    for line in process.stdout:
                        event = _event(line)
                        if event is None or event["event"] == "alive":
                            continue
                        if event["event"] == "error":
                            raise as_error(event)
                        seen[0] += 1
                        yield event
                finally:
                    process.kill()
            stderr.seek(0)
            said = stderr.read().decode(errors="replace")
            self._check(process.returncode, said)
            raise _Lost(said)

    def _install(self) -> None:
        digest = hashlib.sha256(self.agent).hexdigest()
        arguments = ("-c", INSTALL, self.device.folder, _agent_name(self.agent), digest)
        done = subprocess.run(self._remote(*arguments), capture_output=True, check=False, input=self.agent)
        if done.returncode:
            raise explained(self.device, done.returncode, done.stderr.decode(errors="replace"))

    def _agent(self, *verb: str) -> list[str]:
        return self._remote(f"{self.device.folder}/{_agent_name(self.agent)}", *verb)

    def _remote(self, *arguments: str) -> list[str]:
        return [*self.ssh, self.device.ssh, "--", shlex.join([self.device.python, *arguments])]

    def _call(self, command: Sequence[str], stdin: bytes | IO[bytes], timeout_s: float | None = None) -> Any:  # noqa: ANN401
        given: dict[str, Any] = {"input": stdin}
        if not isinstance(stdin, bytes):
            stdin.seek(0)
            given = {"stdin": stdin}
        done = subprocess.run(command, capture_output=True, check=False, timeout=timeout_s, **given)
        for line in reversed(done.stdout.splitlines()):
            event = _event(line)
            if event is not None and event["event"] == "error":
                self.reached = True
                raise as_error(event)
            if event is not None and event["event"] == "result":
                self.reached = True
                return event["result"]
        said = done.stderr.decode(errors="replace")
        self._check(done.returncode, said)
        raise _NoAgent(said)  # another program, or none

    def _check(self, code: int, said: str) -> None:
        """Raise what an exit code and the standard error of a call without a result mean."""
        if code == NO_CONNECTION or code < 0:
            raise _Lost(said)
        self.reached = True
        if code != 0 and ".pyz" in said:  # Python's words for a file that is not there, or not whole
            raise _NoAgent(said)
        if code != 0:
            raise explained(self.device, code, said)

    def _patiently(self, attempt: Callable[[], Any]) -> Any:  # noqa: ANN401 - what ``attempt`` returns
        """``attempt``, again and again while the connection is lost; not if it was never there."""
        pause_s, deadline = FIRST_PAUSE_S, time.monotonic() + PATIENCE_S
        while True:
            try:
                return attempt()
            except _Lost as lost:
                if not self.reached:
                    raise explained(self.device, NO_CONNECTION, str(lost)) from None
                if time.monotonic() > deadline:
                    raise _GivenUp(
                        f"The connection to {self.device.name} was lost, and could not be made again for "
                        f"{PATIENCE_S:g} s: {_last_line(str(lost))}",
                        "What was started there goes on. Run the same command again, and its result is picked up.",
                    ) from None
                if pause_s == FIRST_PAUSE_S:
                    self.note(f"{self.device.name} cannot be reached; trying again for {PATIENCE_S:g} s")
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _agent_name(content: bytes) -> str:
    return f"agent-{hashlib.sha256(content).hexdigest()[:16]}.pyz"


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None of what a login shell prints, or half a line."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason was given"])[-1]
