"""Signals that end a command, wherever they arrive."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_finaliser_is_not_lost(number):
    command = [sys.executable, "-c", PROGRAM.format(number=int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr) == (f"stopped {128 + number}\n", "")
