"""The process of one step of a sweep's cell: ``python -m catro_deploy.cli.step``. See ``sweep/orders.py``."""

import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from catro_deploy.agent.locks import is_locked
from catro_deploy.agent.process import error_event
from catro_deploy.cli.faults import as_catro_error
from catro_deploy.cli.stopping import not_hidden, stop_on_signals
from catro_deploy.runs.folder import RunFolder
from catro_deploy.sweep.orders import EventProgress, Order

__all__ = ["main"]

POLL_S = 0.5
KIB = 1024


def main() -> int:
    """Carry out the order on standard input; the exit code is 0, or that of the reported error."""
    stop_on_signals()
    try:
        with not_hidden():
            return _carry_out()
    except KeyboardInterrupt as stopped:
        return int(getattr(stopped, "exit_code", 128 + signal.SIGINT))


def _carry_out() -> int:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries goes to standard error
    content = json.loads(sys.stdin.readline())
    order = Order(**content | {"steps": tuple(map(tuple, content["steps"]))})
    threading.Thread(target=_end_when_left, daemon=True).start()
    progress = EventProgress(channel)
    progress.tell("begin", where=socket.gethostname(), pid=os.getpid())
    try:
        with not_hidden():
            missed = _follow(order, progress)
    except Exception as error:
        known = as_catro_error(error, Path(order.run))
        failure = error_event(known)
        progress.tell(failure.pop("event"), exit_code=known.exit_code, **failure)
        return known.exit_code
    progress.tell("end", missed=missed, peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB)
    return 0


def _follow(order: Order, progress: EventProgress) -> list[str]:
    """Run the steps; return lines that say which requirements they missed."""
    from catro_deploy import pipeline
    from catro_deploy.settings import settings_from_text

    run, settings = RunFolder(Path(order.run)), settings_from_text(order.text)
    deadline = time.monotonic() + order.patience_s
    while is_locked(run.path / ".lock") and time.monotonic() < deadline:
        time.sleep(POLL_S)
    problems: list[str] = []
    for stages in order.steps:
        progress.tell("step", stage=stages[0])
        missed = pipeline.run_stages(stages, settings, run, progress, table=pipeline.STAGES, ahead=order.ahead)
        problems += missed.problem.splitlines() if missed else []
    return problems


def _end_when_left() -> None:
    """End this process as SIGTERM does when the requesting process is gone."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
