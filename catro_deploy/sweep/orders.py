"""The order that the process of a step receives, and the events that it emits: JSON, one per line.

The order comes first on its standard input, which then stays open: when it closes, the requesting process is gone, and
the step ends. Events come on its standard output; the last one is ``end`` or ``error``.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from catro_deploy.progress import Task

__all__ = ["Event", "EventProgress", "Order", "running"]

Event = dict[str, Any]

MODULE = "catro_deploy.cli.step"
EVERY_S = 1.0
"""How often a task reports its progress."""
POLL_S = 0.1
ENDING_S = 20.0
"""Time that a step has to end when it is stopped; after that it is killed."""


@dataclass(frozen=True)
class Order:
    """The stages of each step to run, with the settings in ``text``, in the folder ``run``.

    ``place`` is the working folder, where relative paths in settings start; ``module`` is the module that carries out
    the order. ``ahead`` are stages of later orders whose devices can be reached from the same machine, and are checked
    first. ``patience_s``: how long to wait if another process, on a machine that was lost, still holds the folder.
    """

    steps: tuple[tuple[str, ...], ...]
    text: str
    run: str
    patience_s: float = 0.0
    ahead: tuple[str, ...] = ()
    place: str = field(default_factory=os.getcwd)
    module: str = field(default_factory=lambda: MODULE)

    def line(self) -> str:
        """The order as the line that is sent."""
        return json.dumps(vars(self)) + "\n"


class EventProgress:
    """A Progress that reports everything as events."""

    def __init__(self, channel: IO[str]) -> None:
        self._channel = channel

    def tell(self, event: str, **content: Any) -> None:  # noqa: ANN401 - what JSON can hold
        """Send one event, with the time; if the reader is gone, the process ends as by Ctrl-C."""
        line = json.dumps({"event": event, "time": time.time(), **content})
        try:
            self._channel.write(line + "\n")
            self._channel.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._channel.fileno())
            raise KeyboardInterrupt from None

    def note(self, text: str) -> None:
        """Send a line for the log."""
        self.tell("note", text=text)

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        """Send the progress of a task at intervals."""
        yield _EventTask(self, title, total, done)


class _EventTask:
    def __init__(self, progress: EventProgress, title: str, total: float, done: float) -> None:
        self._progress, self._title, self._total, self._done = progress, title, total, done
        self._reported_at = 0.0
        self._report("")

    def advance(self, steps: float = 1) -> None:
        self._done += steps
        if time.monotonic() - self._reported_at >= EVERY_S:
            self._report("")

    def describe(self, text: str) -> None:
        self._report(text)

    def _report(self, text: str) -> None:
        self._reported_at = time.monotonic()
        share = min(self._done / self._total, 1.0) if self._total else 1.0
        self._progress.tell("task", title=self._title, share=share, text=text)


@contextmanager
def running(order: Order, environment: Mapping[str, str], stopping: threading.Event) -> Iterator[Iterator[Event]]:
    """The events of a process that carries out ``order``, with ``environment`` added to the variables of this process.

    It is stopped when ``stopping`` is set or when the block ends, and has exited when the block has ended.
    """
    # -P: a file in the user's working folder must not be imported in place of a library.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", order.module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
        cwd=order.place if Path(order.place).is_dir() else None,
        text=True,
        start_new_session=True,  # Ctrl-C is for the parent, which then stops this process
    )
    left = threading.Event()
    watcher = threading.Thread(target=_end_when, args=(process, stopping, left), daemon=True)
    watcher.start()
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(order.line())
            process.stdin.flush()
        yield _events(process)
    finally:
        left.set()
        watcher.join()
        with process, suppress(BrokenPipeError):
            pass


def _events(process: "subprocess.Popen[str]") -> Iterator[Event]:
    assert process.stdout is not None
    for line in process.stdout:
        try:
            event: Event = json.loads(line)
        except ValueError:
            break  # half a line: the process was killed while it was writing
        yield event
        if event["event"] in ("end", "error"):
            return
    yield {"event": "killed", "time": time.time(), "code": process.wait()}


def _end_when(process: "subprocess.Popen[str]", stopping: threading.Event, left: threading.Event) -> None:
    """Make sure that ``process`` exits once one of the events is set."""
    while not left.wait(POLL_S) and not stopping.is_set():
        pass
    if not stopping.is_set():  # it has reported its end
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
    process.terminate()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
