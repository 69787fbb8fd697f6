"""Signals that end a command, wherever they arrive."""

import signal
import subprocess
import sys

import pytest

from catro_deploy.cli.stopping import not_hidden

IN_FINALISER = """
import os, time
from catro_deploy.cli.stopping import Terminated, stop_on_signals

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), {number})
        sum(range(10_000))  # here the signal's exception is raised, and ignored

stop_on_signals()
try:
    finalised = Finalised()
    del finalised
    time.sleep(30)
except KeyboardInterrupt as stopped:
    print("stopped", getattr(stopped, "exit_code", 130))
"""

IN_NATIVE_CODE = """
import os
from pydantic_core import SchemaValidator, core_schema
from catro_deploy.cli.stopping import not_hidden, stop_on_signals

class Shown:
    def __repr__(self):
        os.kill(os.getpid(), {number})
        return f"{{sum(range(10_000))}}"  # here the signal's exception is raised; pydantic makes it a SchemaError

stop_on_signals()
try:
    with not_hidden():
        SchemaValidator(core_schema.literal_schema([Shown()]))
except KeyboardInterrupt as stopped:
    print("stopped", getattr(stopped, "exit_code", 130))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("program", [IN_FINALISER, IN_NATIVE_CODE], ids=["finaliser", "native"])
def test_a_signal_is_not_lost(program, number):
    command = [sys.executable, "-c", program.format(number=int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr) == (f"stopped {128 + number}\n", "")


def test_an_error_without_a_signal_stays_what_it_is():
    with pytest.raises(ValueError, match="wrong"), not_hidden():
        raise ValueError("wrong")
