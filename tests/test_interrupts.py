import signal
import subprocess
import sys
import threading

import pytest

from catro_deploy.interrupts import deferred_signals

IN_EXPORTER = """
import os, signal
from pathlib import Path
from torch import nn
from torch._library import simple_registry  # its function is called by native code
from catro_deploy.cli.stopping import stop_on_signals
from catro_deploy.graph.onnx.export import export_onnx

calls = []

def stop(*arguments):
    calls.append(arguments)
    if len(calls) == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return find(*arguments)

find, simple_registry.find_torch_dispatch_rule = simple_registry.find_torch_dispatch_rule, stop
stop_on_signals()
try:
    export_onnx(nn.Conv2d(3, 4, 3).eval(), (3, 8, 8), Path({path!r}), opset=18, metadata={{}})
except KeyboardInterrupt as stopped:
    print("stopped", stopped.exit_code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_handled_at_the_end(number):
    raised, before = [], signal.signal(number, lambda received, frame: raised.append(received))
    try:
        with deferred_signals():
            signal.raise_signal(number)
            assert not raised
        assert raised == [number]
    finally:
        signal.signal(number, before)


def test_a_second_signal_is_handled_immediately():
    reached = []

    def twice() -> None:
        with deferred_signals():
            for number in range(3):
                reached.append(number)
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert reached == [0, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_replaces_an_error_of_the_block():
    def stopped_and_wrong() -> None:
        with deferred_signals():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("wrong")

    with pytest.raises(KeyboardInterrupt):
        stopped_and_wrong()


def test_without_a_signal_all_is_as_before():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with deferred_signals():
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # without a handler: ends the process, as before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


def test_other_threads_may_use_it():
    entered = []

    def work() -> None:
        with deferred_signals():
            entered.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [signal.default_int_handler]


def test_a_signal_does_not_abort_the_exporter(tmp_path):
    """An exception at this place is one that PyTorch's native code does not expect: the process aborted (SIGABRT)."""
    program = IN_EXPORTER.format(path=str(tmp_path / "model.onnx"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "stopped 143\n"), done.stderr
    assert not list(tmp_path.iterdir())
