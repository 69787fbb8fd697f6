"""How a long computation says where it is. The command line draws it; tests and libraries stay silent."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Progress", "Silent", "Task"]


class Task(Protocol):
    """One bar."""

    def advance(self, steps: float = 1) -> None:
        """Move the bar on by ``steps``."""

    def describe(self, text: str) -> None:
        """Replace the text beside the bar, once an epoch or a layer: without a screen it becomes a line."""


class Progress(Protocol):
    """What stages report to."""

    def task(self, title: str, total: float, done: float = 0) -> AbstractContextManager[Task]:
        """Open a bar of ``total`` steps, ``done`` of them behind it already."""

    def note(self, text: str) -> None:
        """Say one line that stays on the screen."""


class _SilentTask:
    def advance(self, steps: float = 1) -> None: ...

    def describe(self, text: str) -> None: ...


class Silent:
    """A Progress that says nothing."""

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        """Open a bar that is not shown."""
        yield _SilentTask()

    def note(self, text: str) -> None:
        """Say nothing."""
