"""Requests of a host to the agent over ssh, as verbs; the answers are events, the last one ``result`` or ``error``.

================================== ============================ ==========================
verb                               standard input               result
================================== ============================ ==========================
``lacking TOKEN``                  ``[hash, ...]``              ``{hash: bytes arrived}``
``put TOKEN HASH SIZE OFFSET``     a file from OFFSET on        None
``start NAME``                     a ``StartRequest``           ``{"since": ...}``
``follow NAME``                    ``N``                        the job's, from event N on
``end NAME``                                                    None
================================== ============================ ==========================

``lacking`` returns the files that are missing here; TOKEN identifies the host, for uploads that were cut off.
A started job continues if the connection is lost, and ``start`` finds an existing job of the same name. One job at a
time measures on a device; others wait.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catro_deploy.agent.events import Note
from catro_deploy.agent.jobs import StartRequest, Workspace
from catro_deploy.agent.locks import alone, is_locked, locked
from catro_deploy.agent.process import agent_command, as_error, error_event, job_events
from catro_deploy.agent.store import LOCK, Store, storage_errors
from catro_deploy.agent.wire import parse, read, to_json
from catro_deploy.errors import CatroError, FaultError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Write = Callable[[dict[str, Any]], None]

__all__ = ["serve"]

POLL_S = 0.05
# A reader that has disconnected is only noticed by a write.
ALIVE_EVERY_S = 10.0
STARTING_S = 30.0
LAST_LINES = 12
EVENTS, ERROR, JOB, LOG, FILES, TEMPORARY = "events.jsonl", "error.json", "job.json", "log.txt", "files", "tmp"
# Space for an error is reserved first, since the error may be a full disk.
ERROR_BYTES = 8192


def serve(arguments: list[str], write: Write) -> Any:  # noqa: ANN401 - what JSON can hold
    """Run the verb ``arguments[0]`` with the other arguments, and return its result.

    Raises:
        CatroError: the verb failed; see its function.
    """
    verb, *rest = arguments
    if verb not in VERBS:
        raise UsageError(f"The agent does not know {verb!r}.", f"It knows: {', '.join(VERBS)}.")
    return VERBS[verb](Store.here(), write, *rest)


def _lacking(store: Store, write: Write, token: str) -> dict[str, int]:
    return store.lacking(json.load(sys.stdin), token)


def _put(store: Store, write: Write, token: str, digest: str, size: str, offset: str) -> None:
    store.put(token, digest, int(size), int(offset), sys.stdin.buffer)


def _start(store: Store, write: Write, name: str) -> dict[str, Any]:
    """Start a job in a process that outlives this one; a job of that name that is running or has finished is kept.

    Raises:
        MessageError: the request is damaged, or of another version.
        FaultError: a file of the job is missing, or the process does not start.
        StorageError: the disk is full.
    """
    asked, folder = read(StartRequest, parse(sys.stdin.read(), "request"), "request"), store.job(name)
    store.tidy()
    if is_locked(folder / LOCK) or _has_ended(folder):
        return {"since": folder.stat().st_mtime}
    with storage_errors(store.home):
        shutil.rmtree(str(folder), ignore_errors=True)
        (folder / FILES).mkdir(parents=True)
        (folder / TEMPORARY).mkdir()
        for file, digest in asked.files.items():
            if store.lacking([digest]):
                raise FaultError(f"The file {file} of the job is not on the device.", "Run the command again.")
            os.link(str(store.file(digest)), str(folder / FILES / file))
        (folder / JOB).write_text(json.dumps(to_json(asked)), encoding="utf-8")
        (folder / ERROR).write_bytes(b" " * ERROR_BYTES)
        (folder / EVENTS).touch()
        with (folder / LOG).open("wb") as log:
            subprocess.Popen(  # not waited for: it outlives this process
                [*agent_command(), "work", name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                # Deleted with the job, also if it is killed.
                env={**os.environ, "TMPDIR": str(folder / TEMPORARY)},
            )  # fmt: skip
    deadline = time.monotonic() + STARTING_S
    while not (is_locked(folder / LOCK) or _has_ended(folder)):
        if time.monotonic() > deadline:
            raise FaultError("\n".join(["The job did not start.", *_last_lines(folder / LOG)]))
        time.sleep(POLL_S)
    return {"since": None}


def _work(store: Store, write: Write, name: str) -> None:
    """Run a job, alone on this device, and write its events into its folder."""
    folder = store.job(name)
    lock = locked(folder / LOCK, str(os.getpid()), wait=True)
    with storage_errors(store.home), lock, (folder / EVENTS).open("a", encoding="utf-8") as file:

        def write(event: dict[str, Any]) -> None:
            file.write(json.dumps(event) + "\n")
            file.flush()

        try:
            asked = read(StartRequest, parse((folder / JOB).read_text(encoding="utf-8"), JOB), JOB)
            workspace = Workspace(str(folder / FILES), str(store.home))

            def wait_for(holder: str) -> None:
                write(to_json(Note(f"waiting: {holder} is measuring on the device")))

            # Within the try: a full disk is reported like any other error of the job.
            with storage_errors(store.home), alone(store.home / "device.lock", asked.who, wait_for):
                for event in job_events(asked.job, workspace, asked.limit_s):
                    write(event)
        except CatroError as error:
            with (folder / ERROR).open("r+b") as reserved:
                reserved.write(json.dumps(error_event(error)).encode())


def _follow(store: Store, write: Write, name: str) -> Any:  # noqa: ANN401 - the job's result
    """Forward the events of a job as they arrive.

    Raises:
        CatroError: the job's error.
        FaultError: it was killed, or is not known.
    """
    done, folder, last_sign = int(sys.stdin.readline()), store.job(name), time.monotonic()
    if not folder.is_dir():
        raise FaultError("The device does not know this job any more.", "Run the command again.")
    with (folder / EVENTS).open(encoding="utf-8") as file:
        while True:
            running = is_locked(folder / LOCK)  # checked before reading, so that the last events are seen
            for line in _whole_lines(file):
                done -= 1
                event = json.loads(line)
                if event["event"] == "result":
                    return event["result"]
                if done < 0:
                    write(event)
            if not running:
                if error := _error(folder):
                    raise as_error(error)
                raise FaultError(
                    "\n".join(["The job was killed on the device.", *_last_lines(folder / LOG)]),
                    "Run the same command again. If this repeats, its memory may be too small: see dmesg there.",
                )
            if time.monotonic() - last_sign > ALIVE_EVERY_S:
                write({"event": "alive"})
                last_sign = time.monotonic()
            time.sleep(POLL_S)


def _end(store: Store, write: Write, name: str) -> None:
    """Stop a job if it is running, and delete it."""
    folder = store.job(name)
    while is_locked(folder / LOCK):
        if pid := (folder / LOCK).read_text():
            with suppress(ProcessLookupError):
                os.killpg(int(pid), signal.SIGKILL)
            break
        time.sleep(POLL_S)  # it has the lock, but has not written its process id yet
    shutil.rmtree(str(folder), ignore_errors=True)


VERBS: dict[str, Callable[..., Any]] = {
    "lacking": _lacking,
    "put": _put,
    "start": _start,
    "work": _work,
    "follow": _follow,
    "end": _end,
}


def _has_ended(folder: Path) -> bool:
    """Whether a job has finished, with a result or an error."""
    if not (folder / EVENTS).is_file():
        return False
    with (folder / EVENTS).open(encoding="utf-8") as file:
        last = deque(_whole_lines(file), maxlen=1)
    return any(json.loads(line)["event"] == "result" for line in last) or bool(_error(folder))


def _error(folder: Path) -> dict[str, Any]:
    text = (folder / ERROR).read_text(encoding="utf-8").strip()
    error: dict[str, Any] = json.loads(text) if text else {}
    return error


def _whole_lines(file: Any) -> Iterator[str]:  # noqa: ANN401 - TextIO
    """The complete lines."""
    while True:
        begin, line = file.tell(), file.readline()
        if not line.endswith("\n"):
            file.seek(begin)
            return
        yield line


def _last_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
