"""The agent: reads one order, a line, from the standard input, writes events as JSON lines to the standard output.

With arguments it serves a host that is connected by ssh (service.py), or runs the jobs of a bundle (carried.py).
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from catro_deploy.agent.jobs import Order
from catro_deploy.agent.process import end_with_host, error_event
from catro_deploy.agent.wire import parse, read, to_json
from catro_deploy.errors import CatroError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]


def main() -> int:
    """Run the job, or the command in the arguments; return 0, or the exit code of the reported error."""
    if sys.argv[1:] == ["do"]:
        from catro_deploy.agent.carried import do

        return do(Path(sys.argv[0]).absolute().parent)
    write = _writer(_take_stdout())
    try:
        # Only after the standard output is redirected: libraries also print on import.
        if sys.argv[1:]:
            from catro_deploy.agent.service import serve

            result = serve(sys.argv[1:], write)
        else:
            from catro_deploy.agent.agent import run

            order = read(Order, parse(_order(), "order"), "order")
            result = to_json(run(order.job, order.workspace, lambda event: write(to_json(event))))
    except CatroError as error:
        write(error_event(error))
        return error.exit_code
    write({"event": "result", "result": result})
    return 0


def _order() -> str:
    """The order on the standard input; if it ends with a newline, the input stays open as long as the host lives."""
    order = sys.stdin.readline()
    if order.endswith("\n"):
        threading.Thread(target=end_with_host, daemon=True).start()
    return order


def _take_stdout() -> TextIO:
    """Reserve the standard output for events: from now on, output of libraries goes to the standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def _writer(channel: TextIO) -> Callable[[dict[str, Any]], None]:
    def write(event: dict[str, Any]) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    return write


if __name__ == "__main__":
    sys.exit(main())
