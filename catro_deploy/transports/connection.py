"""Calls to the agent on another machine with the OpenSSH client, retried if the connection is lost.

No user text reaches a shell unquoted, and the user's ssh checks host keys.
"""

import hashlib
import json
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any, TypeVar

from catro_deploy.agent.process import as_error
from catro_deploy.errors import DeviceError
from catro_deploy.transports.agent_file import bootstrap
from catro_deploy.transports.refusals import explained, is_final
from catro_deploy.transports.registry import Device

__all__ = ["Connection", "GivenUp", "Lost", "NoAgent", "connected"]

# A dead connection is noticed after 15 s.
OPTIONS = ("-T", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
NO_CONNECTION = 255
# How long a lost connection is retried, and the pauses between attempts.
PATIENCE_S, FIRST_PAUSE_S, LONGEST_PAUSE_S = 900.0, 1.0, 30.0
# Longest path of the folder of the socket that ssh's calls share.
LONGEST_SOCKET_FOLDER = 40
ENDING_S = 15
TOKEN_BYTES = 8
GOES_ON = "The job continues there. Run the same command again to fetch its result."

R = TypeVar("R")


class Lost(Exception):  # noqa: N818 - not the user's error: it is retried
    """The connection failed; the argument is ssh's standard error."""


class NoAgent(DeviceError):  # noqa: N818 - installing fixes it
    """The agent is not on the device yet, or is damaged; ``arrived`` bytes of it came before the connection was cut."""

    def __init__(self, device: Device, arrived: int) -> None:
        super().__init__(f"The agent on {device.name} is missing, or was changed there.", "Run the command again.")
        self.arrived = arrived


class GivenUp(Exception):  # noqa: N818 - the job continues, unlike with other errors
    """The connection could not be restored; the arguments are problem and hint."""


@contextmanager
def connected(device: Device, agent: bytes, note: Callable[[str], None]) -> Iterator["Connection"]:
    """Let calls to ``device`` in the block share one connection."""
    if shutil.which("ssh") is None:
        raise DeviceError("This machine has no ssh command.", "Install OpenSSH: sudo apt-get install openssh-client")
    with tempfile.TemporaryDirectory(prefix="cd-") as sockets:
        shared = len(sockets) <= LONGEST_SOCKET_FOLDER
        control = ("-o", "ControlMaster=auto", "-o", f"ControlPath={sockets}/%C", "-o", "ControlPersist=60")
        ssh = ("ssh", *OPTIONS, *(control if shared else ()))
        try:
            yield Connection(device, ssh, agent, note)
        finally:
            if shared:
                with suppress(subprocess.TimeoutExpired):
                    command = [*ssh, "-O", "exit", device.ssh]
                    subprocess.run(command, capture_output=True, check=False, timeout=ENDING_S)


@dataclass
class Connection:
    """The ``agent`` on ``device``, called with the command ``ssh``.

    ``token`` marks its uploads there; ``arrived`` bytes of them were there when the device was last queried.
    """

    device: Device
    ssh: tuple[str, ...]
    agent: bytes
    note: Callable[[str], None]
    reached: bool = False
    arrived: int = 0
    token: str = field(default_factory=lambda: secrets.token_hex(TOKEN_BYTES))

    def run(self, *verb: str, stdin: bytes | IO[bytes] = b"", timeout_s: float | None = None) -> Any:  # noqa: ANN401 - what JSON can hold
        """The result of one verb of the agent.

        Raises:
            Lost: the connection is lost.
            NoAgent: the agent is missing on the device.
            CatroError: the agent reported it.
        """
        return self._call(self._command("run", *verb), stdin, timeout_s)

    def install(self, offset: int) -> None:
        """Send the agent from byte ``offset`` onwards."""
        self._call(self._command("install", str(len(self.agent)), str(offset)), self.agent[offset:])

    def events(self, name: str, seen: list[int]) -> Iterator[dict[str, Any]]:
        """The events of a job after the first ``seen``, which is incremented."""
        command = self._command("run", "follow", name)
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
                        self._raise_refusal(event)
                        seen[0] += 1
                        yield event
                finally:
                    process.kill()
            stderr.seek(0)
            said = stderr.read().decode(errors="replace")
            self._check(process.returncode, said)
            raise Lost(said)

    def patiently(self, attempt: Callable[[], R]) -> R:
        """Retry ``attempt`` while the connection is lost, unless it was never established.

        Progress of uploads restarts the time limit.
        """
        arrived, pause_s, deadline = self.arrived, FIRST_PAUSE_S, time.monotonic() + PATIENCE_S
        while True:
            try:
                return attempt()
            except Lost as lost:
                if not self.reached:
                    raise explained(self.device, NO_CONNECTION, str(lost)) from None
                if is_final(str(lost)):
                    refusal = explained(self.device, NO_CONNECTION, str(lost))
                    raise GivenUp(refusal.problem, f"{refusal.hint}\n{GOES_ON}") from None
                if self.arrived > arrived:
                    arrived, pause_s, deadline = self.arrived, FIRST_PAUSE_S, time.monotonic() + PATIENCE_S
                if time.monotonic() > deadline:
                    raise GivenUp(
                        f"The connection to {self.device.name} was lost, and could not be restored within "
                        f"{PATIENCE_S:g} s: {_last_line(str(lost))}",
                        GOES_ON,
                    ) from None
                if pause_s == FIRST_PAUSE_S:
                    self.note(f"{self.device.name} cannot be reached; trying again for {PATIENCE_S:g} s")
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _command(self, action: str, *arguments: str) -> list[str]:
        digest = hashlib.sha256(self.agent).hexdigest()
        python = re.sub("^~/", "./", self.device.python)  # the words are quoted, and ssh starts in the user's home
        name = f"agent-{digest[:16]}.pyz"
        words = [python, "-c", bootstrap(), self.device.folder, name, digest, self.token, action, *arguments]
        return [*self.ssh, self.device.ssh, "--", shlex.join(words)]

    def _call(self, command: Sequence[str], stdin: bytes | IO[bytes], timeout_s: float | None = None) -> Any:  # noqa: ANN401
        given: dict[str, Any] = {"input" if isinstance(stdin, bytes) else "stdin": stdin}
        done = subprocess.run(command, capture_output=True, check=False, timeout=timeout_s, **given)
        for line in reversed(done.stdout.splitlines()):
            event = _event(line)
            if event is not None:
                self._raise_refusal(event)
                if event["event"] == "result":
                    self.reached = True
                    return event["result"]
        said = done.stderr.decode(errors="replace")
        self._check(done.returncode, said)
        raise explained(self.device, done.returncode, said)  # another program answered

    def _raise_refusal(self, event: Mapping[str, Any]) -> None:
        if event["event"] in ("error", "missing"):
            self.reached = True
            if event["event"] == "missing":
                raise NoAgent(self.device, event["arrived"])
            error = as_error(event)
            raise type(error)(f"On {self.device.name}: {error.problem}", self.device.fitted(error.hint))

    def _check(self, code: int, said: str) -> None:
        """Raise the error for the exit code and standard error of a call without a result."""
        if code == NO_CONNECTION or code < 0:
            raise Lost(said)
        self.reached = True
        if code != 0:
            raise explained(self.device, code, said)


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None for output of a login shell, or an incomplete line."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason was given"])[-1]
