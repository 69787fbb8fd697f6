"""Signals that wait until native code which an exception would break has ended."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["deferred_signals"]

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP at the end of this block; a second signal is handled immediately.

    Handlers raise exceptions between any two lines of Python. Where native code has called Python and does not expect
    one, it becomes another exception, or ends the process (``std::terminate``). Signals without a Python handler, and
    blocks outside the main thread, where no handler runs, are unaffected.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]  # Windows has no SIGHUP
    handlers = {number: signal.getsignal(number) for number in numbers if callable(signal.getsignal(number))}
    received: list[int] = []

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)
        restore()

    for number in handlers:
        signal.signal(number, remember)
    try:
        yield
    finally:
        restore()
        if received:
            signal.raise_signal(received[0])
