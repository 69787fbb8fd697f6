"""Progress of a sweep: a live table of its cells on a terminal, or one line for each change in a log."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from catro_deploy.report.sweep import figure_words
from catro_deploy.units import counted

if TYPE_CHECKING:
    from rich.table import Table

    from catro_deploy.sweep.driver import CellState, Watcher

__all__ = ["SweepLines", "SweepScreen", "make_watcher", "status_words"]

REFRESHES_PER_S = 4
OTHER_LINES = 4
"""Lines of the screen that are not rows of the table."""
BAR = 10


@contextmanager
def make_watcher(states: "Sequence[CellState]") -> "Iterator[Watcher]":
    """A table if stderr is a terminal, else lines."""
    if not sys.stderr.isatty():
        yield SweepLines(states)
        return
    with SweepScreen(states).live() as screen:
        yield screen


class SweepLines:
    """Prints a line for each change, and warnings; other messages of the stages are only in the logs."""

    def __init__(self, states: "Sequence[CellState]") -> None:
        self._states = states
        self._warned: set[str] = set()

    def changed(self, state: "CellState") -> None:
        """Print what the cell is doing now."""
        ended = sum(one.has_ended for one in self._states)
        _print(f"[{ended}/{len(self._states)}] {state.cell.name}: {status_words(state)}")

    def advanced(self, state: "CellState") -> None:
        """Do nothing: a log shows only changes."""

    def noted(self, state: "CellState", text: str) -> None:
        """Print a warning, once for all cells."""
        if text.startswith("WARNING") and text not in self._warned:
            self._warned.add(text)
            _print(f"{state.cell.name}: {text}")


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a line of a log


def status_words(state: "CellState") -> str:
    """What the cell is doing, or its outcome."""
    if state.has_ended:
        word = {"done": "done", "missed": "missed a requirement", "failed": "FAILED"}[state.status]
        found = figure_words(state.figures) if state.figures else ""
        return ": ".join(filter(None, [word, found, " ".join(state.problems)]))
    doing = state.step.doing if state.step else ""
    return doing if state.status == "running" and not state.queued else f"waiting for {doing}"


class SweepScreen:
    """A table with a row for each unfinished cell, as far as they fit on the screen: running cells first."""

    def __init__(self, states: "Sequence[CellState]") -> None:
        from rich.console import Console
        from rich.live import Live

        self._states, self._began = states, time.monotonic()
        self._warned: set[str] = set()
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            get_renderable=self._table, console=self._console, refresh_per_second=REFRESHES_PER_S, transient=True
        )

    @contextmanager
    def live(self) -> "Iterator[SweepScreen]":
        """Show the table until the block ends."""
        with self._live:
            yield self

    def changed(self, state: "CellState") -> None:
        """Print a line above the table when a cell has finished."""
        if state.has_ended:
            self._console.print(f"{state.cell.name}: {status_words(state)}", markup=False, highlight=False)

    def advanced(self, state: "CellState") -> None:
        """Do nothing: the table refreshes itself."""

    def noted(self, state: "CellState", text: str) -> None:
        """Print a warning above the table, once for all cells."""
        if text.startswith("WARNING") and text not in self._warned:
            self._warned.add(text)
            self._console.print(f"{state.cell.name}: {text}", markup=False, highlight=False)

    def _table(self) -> "Table":
        from rich.table import Table

        left = [state for state in self._states if not state.has_ended]
        left.sort(key=lambda state: state.status != "running" or state.queued)
        shown = left[: max(1, self._console.height - OTHER_LINES)]
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        ended = len(self._states) - len(left)
        more = f", {len(left) - len(shown)} not shown" if len(left) > len(shown) else ""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left", title_style="bold")
        table.title = f"{ended} of {counted(len(self._states), 'cell')}{more} · {minutes}:{seconds:02d}"
        for name in ("cell", "", "", ""):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        table.show_header = False
        for state in shown:
            table.add_row(state.cell.name, status_words(state), *_where(state))
        return table


def _where(state: "CellState") -> tuple[str, str]:
    """A progress bar of the current task, and its text."""
    if state.status != "running" or state.queued or state.share is None:
        return "", ""
    full = round(BAR * state.share)
    return "━" * full + "╺" * (BAR - full), state.text
