"""The process of a step of a sweep ends without a traceback, whenever it is stopped or left alone."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catro_deploy.sweep.orders import Order


@pytest.fixture
def step():
    with subprocess.Popen(
        [sys.executable, "-m", "catro_deploy.cli.step"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def handles(process, number):
    """Whether the process has installed a handler for the signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return int(mask, 16) >> (number - 1) & 1


def test_its_reader_is_gone(step, tmp_path):
    step.stdout.close()
    step.stdin.write(Order(run=str(tmp_path), text="", steps=()).line())
    step.stdin.flush()
    assert step.wait(20) == 128 + signal.SIGINT
    assert "Traceback" not in step.stderr.read()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_stopped_before_it_has_an_order(step, number):
    deadline = time.monotonic() + 20
    while not handles(step, number) and time.monotonic() < deadline:
        time.sleep(0.01)
    step.send_signal(number)
    assert step.wait(20) == 128 + number
    assert not step.stderr.read()
