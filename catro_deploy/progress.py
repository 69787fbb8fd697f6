"""Progress of long computations. The command line draws it; tests and libraries stay silent."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

from catro_deploy.errors import SettingsError

__all__ = ["Progress", "Silent", "Task", "progress_or_silent"]


class Task(Protocol):
    """One bar."""

    def advance(self, steps: float = 1) -> None:
        """Advance the bar by ``steps``."""

    def describe(self, text: str) -> None:
        """Replace the text next to the bar, once per epoch or layer: without a terminal it becomes a line."""


@runtime_checkable
class Progress(Protocol):
    """What stages report to."""

    def task(self, title: str, total: float, done: float = 0) -> AbstractContextManager[Task]:
        """Open a bar of ``total`` steps, of which ``done`` are finished."""

    def note(self, text: str) -> None:
        """Print one line that stays on the screen."""


class _SilentTask:
    def advance(self, steps: float = 1) -> None: ...

    def describe(self, text: str) -> None: ...


class Silent:
    """A silent Progress."""

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        """Open a bar that is not shown."""
        yield _SilentTask()

    def note(self, text: str) -> None:
        """Print nothing."""


def progress_or_silent(given: object) -> Progress:
    """The caller's ``given`` progress; None: a silent one.

    Raises:
        SettingsError: it is no Progress.
    """
    if given is None:
        return Silent()
    if not isinstance(given, Progress):
        raise SettingsError(
            f"progress = {given!r} has no methods task and note.",
            "Leave it out, or give an object with the methods of catro_deploy.progress.Progress.",
        )
    return given
