"""SIGTERM and SIGHUP end a command like Ctrl-C: temporary files, processes and jobs that it started are removed."""

import os
import signal
import sys
import threading
from types import FrameType

__all__ = ["Terminated", "stop_on_signals"]


AGAIN_S = 0.02
"""A finaliser that swallowed the signal has finished by then."""


class Terminated(KeyboardInterrupt):
    """A signal asks this process to end.

    Attributes:
        exit_code: 128 plus the number of the signal, as shells report it.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def stop_on_signals() -> None:
    """Raise ``Terminated`` in the main thread when one of these signals arrives.

    A second one ends the process immediately. Signals that were ignored at the start stay ignored, such as SIGHUP under
    nohup.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _terminate)
    sys.unraisablehook = _ask_again


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)


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
