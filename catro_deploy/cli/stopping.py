"""SIGTERM and SIGHUP end a command as Ctrl-C does: temporary files go, and so do processes and jobs it started."""

import signal
from types import FrameType

__all__ = ["Terminated", "stop_on_signals"]


class Terminated(KeyboardInterrupt):
    """A signal asks this process to end.

    Attributes:
        exit_code: 128 and the number of the signal, as shells report it.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


def stop_on_signals() -> None:
    """Raise ``Terminated`` in the main thread when one of these signals comes; a second one ends the process at once.

    What the process was started to ignore stays ignored, as SIGHUP is under nohup.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)
