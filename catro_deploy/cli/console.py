"""Output: results to stdout, notes and progress to stderr; bars on a terminal, else lines."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from catro_deploy.progress import Progress, Task

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as Bars
    from rich.progress import TaskID
    from rich.table import Table as DrawnTable

    from catro_deploy.report.tables import Table

__all__ = ["Lines", "Screen", "drawn", "make_progress", "print_json", "print_result", "say"]

WIDTH_WITHOUT_SCREEN, WIDEST = 110, 2000
# Without a terminal, a task that takes this long is reported, and then at each tenth.
INTERVAL_S, SILENCE_S, TENTHS = 15.0, 600.0, 10
# Maximum width of what follows title and bar: 300000/300000, elapsed and remaining time.
OTHER_COLUMNS, TITLE = 36, 34


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
        if isinstance(part, str):  # in a file or a pipe lines are not wrapped, so that paths can be copied
            console.print(part, markup=False, soft_wrap=not sys.stdout.isatty())
        else:
            if not sys.stdout.isatty():
                console.width = _whole_width(console, part)
            for column in getattr(part, "columns", ()):  # a figure that was cut may be mistaken for a whole one
                column.no_wrap, column.overflow = False, "fold"
            console.print(part)


def _whole_width(console: "Console", part: "RenderableType") -> int:
    """The width for a file or a pipe at which no part of ``part`` is cut or wrapped."""
    unbounded = console.options.update(max_width=WIDEST)
    return max(WIDTH_WITHOUT_SCREEN, console.measure(part, options=unbounded).maximum)


def drawn(table: "Table") -> "DrawnTable":
    """``table`` for the terminal."""
    from rich.table import Table as Drawn
    from rich.text import Text

    found = Drawn(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(table.head):
        found.add_column(name, justify="right" if number in table.numeric else "left")
    for row in table.rows:
        found.add_row(*map(Text, row))
    return found


def say(text: str, style: str = "") -> None:
    """Print one message to stderr."""
    _console(stderr=True).print(text, style=style, markup=False)


def make_progress() -> Progress:
    """Bars if stderr is a terminal, else lines."""
    return Screen(_console(stderr=True)) if sys.stderr.isatty() else Lines()


class Lines:
    """A Progress for logs: notes, and for long tasks a line at intervals with elapsed and remaining time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        """Follow a task without a bar."""
        line = _Line(title, total, done, self._clock)
        yield line
        line.end()

    def note(self, text: str) -> None:
        """Print one line to stderr."""
        _print_line(text)


def _print_line(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - the one place that prints plain lines
    except BrokenPipeError:  # nobody reads the progress any more, as after `2>&1 | head`; the work goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class _Line:
    """A task that reports at each tenth, but not more often than INTERVAL_S and not less often than SILENCE_S."""

    def __init__(self, title: str, total: float, done: float, clock: Callable[[], float]) -> None:
        self._title, self._total, self._first, self._done = title, total, done, done
        self._clock, self._text = clock, ""
        self._started = self._reported_at = clock()
        self._reported_tenth: int | None = None

    def advance(self, steps: float = 1) -> None:
        self._done += steps
        now, tenth = self._clock(), int(TENTHS * self._done / self._total) if self._total else TENTHS
        silent_s = now - self._reported_at
        due = silent_s >= INTERVAL_S and (tenth != self._reported_tenth or silent_s >= SILENCE_S)
        if due and self._done < self._total:
            self._reported_at, self._reported_tenth = now, tenth
            _print_line(f"{self._title}: {self._where(now - self._started)}{self._text}")

    def describe(self, text: str) -> None:
        self._text = f"; {text}"

    def end(self) -> None:
        """Report how long it took, for a training or other long work."""
        if self._text or self._reported_tenth is not None:
            _print_line(f"{self._title}: done in {_clock_words(self._clock() - self._started)}{self._text}")

    def _where(self, elapsed: float) -> str:
        share = min(self._done / self._total, 1) if self._total else 1
        made = self._done - self._first
        left = f", {_clock_words(elapsed / made * max(self._total - self._done, 0))} left" if made > 0 else ""
        return f"{share:.0%}, {_clock_words(elapsed)} elapsed{left}"


def _clock_words(seconds: float) -> str:
    """``1:05``, ``2:03:00``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


class Screen:
    """A Progress of bars with elapsed and remaining time, removed when their task ends."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bars
        from rich.text import Text

        class WithText(Bars):
            """Bars with the text of each task on a separate line below them, cut at the terminal's width."""

            def get_renderables(self) -> Iterable["RenderableType"]:
                yield self.make_tasks_table(self.tasks)
                for task in self.tasks:
                    if task.fields["text"]:
                        yield Text(f"  {task.fields['text']}", no_wrap=True, overflow="ellipsis")

        self._console = console
        self._bars = WithText(
            TextColumn("{task.description}"),
            BarColumn(bar_width=max(8, min(24, console.width - TITLE - OTHER_COLUMNS))),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        """Show a bar below the open ones."""
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
