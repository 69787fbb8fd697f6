"""OpenVINO sends no telemetry, and its properties and errors are put into words."""

import os
import subprocess
import sys

import pytest

from catro_deploy.runtimes.ov_library import import_openvino, said, short_version, words

# Reports any attempt to reach another machine, or to look up its address.
WATCHED = """
import socket, sys
def reached_out(*_, **__):
    print("REACHED OUT", flush=True)
    raise OSError
socket.socket.connect = socket.getaddrinfo = socket.create_connection = reached_out
{first}
import openvino
print("imported", sys.modules.get("openvino_telemetry"))
"""


def imported(home, first):
    """The output of a separate process that imports OpenVINO, and the files that it leaves behind."""
    home.mkdir()
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"), str(home))
    # With a variable of continuous integration set, the package itself sends nothing.
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "TF_BUILD", "JENKINS_URL")}
    command = [sys.executable, "-c", WATCHED.format(first=first)]
    done = subprocess.run(command, env=kept | places, cwd=home, capture_output=True, text=True, check=True)
    return done.stdout, [path for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "first",
    [
        "from catro_deploy.runtimes.ov_library import import_openvino; import_openvino()",
        "from catro_deploy.agent.jobs import DoctorJob, Workspace\n"
        "from catro_deploy.agent.agent import run; run(DoctorJob('openvino'), Workspace('', ''), print)",
    ],
)
def test_nothing_is_reported_and_nothing_is_left_in_the_home(tmp_path, first):
    text, files = imported(tmp_path / "home", first)
    assert "imported None" in text
    assert "REACHED OUT" not in text
    assert files == []


def test_the_version_is_short():
    assert short_version(import_openvino()).count(".") == 2


def test_properties_in_words():
    openvino = import_openvino()
    assert words(openvino.Type.f32) == "f32"
    assert words(openvino.properties.hint.PerformanceMode.LATENCY) == "LATENCY"
    assert words(["CPU"]) == "CPU"
    assert words(["GPU.0", "GPU.1"]) == "GPU.0, GPU.1"
    assert words(1) == "1"
    assert words(False) == "False"


def test_where_an_error_was_raised_is_left_out():
    text = (
        "Exception from src/inference/src/cpp/core.cpp:84:\n"
        "Check 'false' failed at src/frontends/report.cpp:151:\n"
        "FrontEnd API failed with OpConversionFailure:\n"
        "Model wasn't fully converted.\n-- Fancy"
    )
    assert said(RuntimeError(text)) == "Model wasn't fully converted. -- Fancy"
    assert said(RuntimeError("")) == "RuntimeError"
