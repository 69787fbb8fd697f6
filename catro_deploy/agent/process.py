"""A job in its own process, in which only the runtime computes: on the host, and on remote devices."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from catro_deploy import errors
from catro_deploy.agent.jobs import Order
from catro_deploy.agent.wire import to_json
from catro_deploy.errors import CatroError, FaultError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from catro_deploy.agent.jobs import Job, Workspace

__all__ = ["agent_command", "as_error", "end_with_host", "error_event", "job_events"]

LAST_LINES = 12
TEMPORARY = "catro-deploy-agent-"
BUILD_LIMIT_S = 3 * 3600
"""Limit for building one engine: a large network at the highest level, on a small device."""


def agent_command() -> list[str]:
    """The command that starts the agent: this package, or the file that was sent."""
    archive = next((str(parent) for parent in Path(__file__).parents if parent.is_file()), None)
    # -P: a file of the user's working folder must not be imported in place of a library.
    return [sys.executable, archive] if archive else [sys.executable, "-P", "-m", "catro_deploy.agent"]


def job_events(job: Job[Any], workspace: Workspace, limit_s: float = 3600) -> Generator[dict[str, Any], None, None]:
    """Run ``job`` in the agent and yield its events, as JSON, as they arrive; the last one is its ``result``.

    ``limit_s`` does not include building engines, each of which has its own limit. However it ends - a result, an
    error, Ctrl-C, or closing the iterator - the process has terminated afterwards.

    Raises:
        CatroError: the agent reported it.
        FaultError: the agent crashed, or took longer than its limits.
    """
    with ExitStack() as stack:
        stderr = stack.enter_context(tempfile.TemporaryFile())
        process = stack.enter_context(_agent(stderr))
        deadline = stack.enter_context(_Deadline(limit_s, process))
        assert process.stdin is not None
        assert process.stdout is not None
        _send(f"{json.dumps(to_json(Order(job, workspace)))}\n", process.stdin)
        for line in process.stdout:
            try:
                event: dict[str, Any] = json.loads(line)
            except json.JSONDecodeError:
                break  # half a line: the agent was killed while it wrote
            if event["event"] == "error":
                raise as_error(event)
            if event["event"] in ("building", "built"):
                deadline.switch(building=event["event"] == "building")
            yield event
            if event["event"] == "result":
                return
        code = process.wait()
        if deadline.expired:
            raise _too_long(limit_s, deadline)
        raise FaultError(_explain_crash(code, stderr), "If the reason is not clear from this: catro-deploy doctor")


def _send(order: str, stdin: IO[bytes]) -> None:
    """Write ``order``. The pipe stays open: its end tells the agent that this process is gone."""
    try:
        stdin.write(order.encode())
        stdin.flush()
    except BrokenPipeError:  # if the agent died at once, its stderr says why
        with suppress(BrokenPipeError):
            stdin.close()


def end_with_host() -> None:
    """Wait until the standard input ends, since the process that started this one is gone; then end this one too."""
    while os.read(0, 1024):
        pass
    temporary = Path(tempfile.gettempdir())
    if temporary.name.startswith(TEMPORARY):
        shutil.rmtree(str(temporary), ignore_errors=True)
    os._exit(1)  # other threads may be in native code


def error_event(error: CatroError) -> dict[str, Any]:
    """``error`` as an event."""
    return {"event": "error", "kind": type(error).__name__, "problem": error.problem, "hint": error.hint}


def as_error(event: Mapping[str, Any]) -> CatroError:
    """The error in an event."""
    kind = event["kind"] if event["kind"] in errors.__all__ else "FaultError"
    error: CatroError = getattr(errors, kind)(event["problem"], event["hint"])
    return error


@contextmanager
def _agent(stderr: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the agent; at the end it is killed, and its temporary files are removed here, since it cannot do that."""
    temporary, pipe = tempfile.mkdtemp(prefix=TEMPORARY), subprocess.PIPE
    environment = {**os.environ, "TMPDIR": temporary}
    try:
        with subprocess.Popen(agent_command(), stdin=pipe, stdout=pipe, stderr=stderr, env=environment) as process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class _Deadline:
    """Kills ``process`` after ``limit_s`` seconds, not counting the time for building engines."""

    def __init__(self, limit_s: float, process: subprocess.Popen[bytes]) -> None:
        self.expired, self.building = False, False
        self._left_s, self._process = limit_s, process

    def __enter__(self) -> _Deadline:
        self._start(self._left_s)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def switch(self, *, building: bool) -> None:
        """Note whether an engine is now being built."""
        if building == self.building:
            return
        self._timer.cancel()
        if building:
            self._left_s -= time.monotonic() - self._began
        self.building = building
        self._start(BUILD_LIMIT_S if building else self._left_s)

    def _start(self, seconds: float) -> None:
        self._began = time.monotonic()
        self._timer = threading.Timer(max(seconds, 0), self._expire)
        self._timer.daemon = True
        self._timer.start()

    def _expire(self) -> None:
        self.expired = True
        self._process.kill()


def _too_long(limit_s: float, deadline: _Deadline) -> FaultError:
    if deadline.building:
        return FaultError(
            f"An engine was not built within {BUILD_LIMIT_S:g} s; building it was stopped.",
            "Build faster: [build] level = 0 to 2.",
        )
    return FaultError(
        f"The measurement did not finish within {limit_s:g} s and was stopped.",
        "Measure for a shorter time (bench.protocol), or one image at a time (bench.batch).",
    )


def _explain_crash(code: int, stderr: IO[bytes]) -> str:
    stderr.seek(0)
    lines = stderr.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:]
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code} and no result"
    return "\n".join([f"The measurement process {how}.", *lines])
