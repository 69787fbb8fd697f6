"""The agent on this machine: a process of its own, in which nothing but the runtime computes."""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from catro_deploy import errors
from catro_deploy.errors import CatroError, FaultError

__all__ = ["run_job"]

LAST_LINES = 12
# -P: a file of the user's working folder must not be imported in place of a library.
AGENT = (sys.executable, "-P", "-m", "catro_deploy.device")


def run_job(job: Mapping[str, Any], limit_s: float = 3600) -> Iterator[dict[str, Any]]:
    """Have the agent do ``job`` and yield its events as they come; the last one is its ``result``.

    However it ends - a result, an error, Ctrl-C, or the caller's leaving - the process is gone afterwards.

    Raises:
        CatroError: the agent reported it.
        FaultError: the agent crashed, or took longer than ``limit_s`` seconds.
    """
    with (
        tempfile.TemporaryFile() as stderr,
        _agent(stderr) as process,
        _killed_after(limit_s, process) as expired,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        with (
            suppress(BrokenPipeError),
            process.stdin,
        ):  # an agent that died at once is explained by its stderr
            process.stdin.write(json.dumps(job).encode())
        for line in process.stdout:
            try:
                event: dict[str, Any] = json.loads(line)
            except json.JSONDecodeError:
                break  # half a line: the agent was killed while it wrote
            if event["event"] == "error":
                raise _as_error(event)
            yield event
            if event["event"] == "result":
                return
        code = process.wait()
        if expired.is_set():
            raise FaultError(
                f"The measurement did not end within {limit_s:g} s and was stopped.",
                "Measure for a shorter time (bench.protocol), or one image at a time (bench.batch).",
            )
        raise FaultError(_explain_crash(code, stderr), "If the reason is not clear from this: catro-deploy doctor")


@contextmanager
def _agent(stderr: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(AGENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _killed_after(limit_s: float, process: subprocess.Popen[bytes]) -> Iterator[threading.Event]:
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(limit_s, expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def _as_error(event: Mapping[str, Any]) -> CatroError:
    kind = event["kind"] if event["kind"] in errors.__all__ else "FaultError"
    error: CatroError = getattr(errors, kind)(event["problem"], event["hint"])
    return error


def _explain_crash(code: int, stderr: IO[bytes]) -> str:
    stderr.seek(0)
    lines = stderr.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:]
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code} and no result"
    return "\n".join([f"The process that measures {how}.", *lines])
