"""What goes where: results to stdout, notes and progress to stderr; bars for a screen, else lines."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from catro_deploy.progress import Progress, Task

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

__all__ = ["Lines", "Screen", "make_progress", "print_json", "print_result", "say"]

WIDTH_WITHOUT_SCREEN = 110


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH_WITHOUT_SCREEN
    return Console(file=stream, width=width, highlight=False, soft_wrap=stderr)


def print_json(document: object) -> None:
    """Print the one JSON document of a command to stdout."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_result(*parts: "RenderableType") -> None:
    """Print tables and lines to stdout."""
    console = _console(stderr=False)
    for part in parts:
        if isinstance(part, str):  # in a file or a pipe a line stays one line: paths are there to be copied
            console.print(part, markup=False, soft_wrap=not sys.stdout.isatty())
        else:
            console.print(part)


def say(text: str, style: str = "") -> None:
    """Print one message to stderr."""
    _console(stderr=True).print(text, style=style, markup=False)


def make_progress() -> Progress:
    """Bars if stderr is a screen, else lines."""
    return Screen(_console(stderr=True)) if sys.stderr.isatty() else Lines()


class Lines:
    """A Progress for logs: a line for each note and each description of a task, such as an epoch's loss."""

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        """Follow a task without a bar."""
        yield _Line(title)

    def note(self, text: str) -> None:
        """Print one line to stderr."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - the one place that prints plain lines


class _Line:
    def __init__(self, title: str) -> None:
        self._title = title

    def advance(self, steps: float = 1) -> None: ...

    def describe(self, text: str) -> None:
        Lines().note(f"{self._title}: {text}")


class Screen:
    """A Progress of bars with elapsed and remaining time, which vanish when their task ends."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bars

        self._console = console
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=console,
            transient=True,
        )

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        """Draw a bar below those that are open."""
        self._bars.start()
        bar = self._bars.add_task(title, total=total, completed=int(done), text="")
        try:
            yield _Bar(self._bars, bar)
        finally:
            self._bars.remove_task(bar)
            if not self._bars.tasks:
                self._bars.stop()

    def note(self, text: str) -> None:
        """Print one line above the bars."""
        self._console.print(text, markup=False, highlight=False)


class _Bar:
    def __init__(self, bars: "Bars", bar: "TaskID") -> None:
        self._bars, self._bar = bars, bar

    def advance(self, steps: float = 1) -> None:
        self._bars.advance(self._bar, steps)

    def describe(self, text: str) -> None:
        fields: dict[str, Any] = {"text": text}
        self._bars.update(self._bar, **fields)
