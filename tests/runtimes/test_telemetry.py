"""ONNX Runtime sends and stores nothing about its use."""

import os
import subprocess
import sys

from tests.onnx_files import write_conv_chain

INFER = """
import os, sys
{first}
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, {{session.get_inputs()[0].name: numpy.ones((1, 3, 8, 8), numpy.float32)}})
print(len(os.listdir("/proc/self/task")))
"""


def undecided(home):
    """The environment of a user who has set nothing about telemetry; all files go to ``home``, a new folder."""
    home.mkdir()
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"), str(home))
    return {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"} | places


def used(model, home, first):
    """The number of threads after an inference in a separate process, and the files that it leaves behind."""
    done = subprocess.run(
        [sys.executable, "-c", INFER.format(first=first), str(model)],
        env=undecided(home),
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout), [path for path in home.rglob("*") if path.is_file()]


def test_it_leaves_no_files_and_starts_no_thread_of_its_own(tmp_path):
    model = write_conv_chain(tmp_path / "model.onnx")
    threads, files = used(model, tmp_path / "ours", "import catro_deploy")
    assert files == []
    more_threads, written = used(model, tmp_path / "alone", "")  # ONNX Runtime's default shows what to look for
    assert more_threads > threads
    assert written


def test_the_agent_on_a_device_turns_it_off_too(tmp_path):
    model = write_conv_chain(tmp_path / "model.onnx")
    _, files = used(model, tmp_path / "agent", "import catro_deploy.agent.agent")
    assert files == []
