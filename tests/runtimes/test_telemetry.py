"""ONNX Runtime sends and stores nothing about its use."""

import os
import subprocess
import sys

from tests.onnx_files import write_conv_chain

INFER = """
import sys
{first}
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, {{session.get_inputs()[0].name: numpy.ones((1, 3, 8, 8), numpy.float32)}})
"""


def undecided(home):
    """The environment of a user who has set nothing about telemetry; all files go to ``home``, a new folder.

    Variables of a CI system are left out: ONNX Runtime switches its telemetry off where it sees them.
    """
    home.mkdir()
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"), str(home))
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ} | places


def files_after_inference(model, home, first):
    """The files that an inference in a separate process leaves behind; ``first`` runs before it."""
    subprocess.run(
        [sys.executable, "-c", INFER.format(first=first), str(model)],
        env=undecided(home),
        cwd=home,
        capture_output=True,
        check=True,
    )
    return [path for path in home.rglob("*") if path.is_file()]


def test_it_leaves_no_files(tmp_path):
    model = write_conv_chain(tmp_path / "model.onnx")
    assert files_after_inference(model, tmp_path / "ours", "import catro_deploy") == []
    assert files_after_inference(model, tmp_path / "default", "")  # ONNX Runtime on its own does leave some


def test_the_agent_on_a_device_turns_it_off_too(tmp_path):
    model = write_conv_chain(tmp_path / "model.onnx")
    assert files_after_inference(model, tmp_path / "agent", "import catro_deploy.agent.agent") == []
