"""SIGTERM and SIGHUP end a command like Ctrl-C: temporary files, processes and jobs that it started are removed."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Terminated", "not_hidden", "stop_on_signals"]


AGAIN_S = 0.02
"""A finaliser that swallowed the signal has finished by then."""

_raised: list[KeyboardInterrupt] = []
"""What the signals of this process have raised."""


class Terminated(KeyboardInterrupt):
    """A signal asks this process to end.

    Attributes:
        exit_code: 128 plus the number of the signal, as shells report it.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def stop_on_signals() -> None:
    """Raise ``KeyboardInterrupt`` on SIGINT, ``Terminated`` on SIGTERM and SIGHUP, both in the main thread.

    A second SIGTERM or SIGHUP ends the process immediately. Signals that were ignored at the start stay ignored, such
    as SIGHUP under nohup.
    """
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _terminate)
    sys.unraisablehook = _ask_again


@contextmanager
def not_hidden() -> Iterator[None]:
    """Raise what a signal has raised in place of the exception that it became.

    Native code may do that: in the middle of building a validator, pydantic reports any exception as ``SchemaError``.
    """
    try:
        yield
    except Exception:
        if _raised:
            raise _raised[-1] from None
        raise


def _interrupt(number: int, frame: FrameType | None) -> None:
    _raised.append(KeyboardInterrupt())
    raise _raised[-1]


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    _raised.append(Terminated(number))
    raise _raised[-1]


def _ask_again(lost: "sys.UnraisableHookArgs") -> None:
    """Repeat a signal that arrived in a finaliser (``__del__``), where Python ignores exceptions."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    number = signal.SIGINT
    if isinstance(lost.exc_value, Terminated):
        number = signal.Signals(lost.exc_value.exit_code - 128)
        signal.signal(number, _terminate)
    timer = threading.Timer(AGAIN_S, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
