"""Command lines in separate processes that start quickly: forked from a process that has imported all packages."""

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny import CHECKOUT

__all__ = ["Forked", "fork"]

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.preloaded"])


def fork(function: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Call the module-level ``function`` in a new process with the environment of this one."""
    process = CONTEXT.Process(target=_call, args=(dict(os.environ), function, arguments))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(CHECKOUT), prepend=os.pathsep)  # for the server that the first call starts
        process.start()
    return process


class Forked:
    """``catro-deploy`` with ``arguments`` in the folder ``cwd``; its output is written to files in ``output``.

    It cannot write files larger than ``largest_bytes``, if given.
    """

    def __init__(self, *arguments: str, cwd: Path, output: Path, largest_bytes: int | None = None) -> None:
        output.mkdir(exist_ok=True)
        self._streams = output / "stdout", output / "stderr"
        for stream in self._streams:
            stream.write_text("")
        self._process = fork(_run, arguments, cwd, self._streams, largest_bytes)

    def wait_until(self, happened: Callable[[str], bool], timeout_s: float = 120) -> None:
        """Wait until ``happened`` is true of the process's stderr; it may have finished by then."""
        last_s = time.monotonic() + timeout_s
        while not happened(self.stderr()):
            if not self._process.is_alive() or time.monotonic() > last_s:
                raise AssertionError(f"this never happened: {self.stderr()}")
            time.sleep(0.002)

    def end(self, code: int | None = None, timeout_s: float = 240) -> int:
        """Send the signal ``code``, if any, and return the exit code: minus the signal number if a signal killed it."""
        if code is not None and self._process.is_alive():
            os.kill(self._process.pid, code)
        self._process.join(timeout_s)
        assert self._process.exitcode is not None, self.stderr()
        return self._process.exitcode

    def stdout(self) -> str:
        """What was written to stdout so far."""
        return self._streams[0].read_text()

    def stderr(self) -> str:
        """What was written to stderr so far."""
        return self._streams[1].read_text()


def _call(environment: dict[str, str], function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    _renew_thread_pool()
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)


def _renew_thread_pool() -> None:
    # In a fork, the first use of PyTorch's thread pool replaces it. Two threads doing so at once abort the process.
    torch.set_num_threads(torch.get_num_threads())


def _run(arguments: tuple[str, ...], cwd: Path, streams: tuple[Path, Path], largest_bytes: int | None) -> None:
    for number, stream in enumerate(streams, 1):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_APPEND), number)
    os.chdir(cwd)
    if largest_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_bytes, largest_bytes))
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = ["catro-deploy", *arguments]
    from catro_deploy.cli.main import main

    try:
        main()
    finally:
        # The command has ended. A signal from now on would end multiprocessing's own code, with exit code 1.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
