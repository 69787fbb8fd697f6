"""CUDA's real runtime libraries from pip on a machine without a GPU, and device nodes that the user may not open."""

import ctypes.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from catro_deploy.errors import RuntimeMissingError
from catro_deploy.runtimes import cuda, cuda_files
from catro_deploy.runtimes.cuda_files import access_problem, library_path, no_gpu_memory

# Versions of TensorRT's bindings, and the CUDA version that each is for.
WHEELS = {"10.3.0": 12, "10.16.1.11": 13, "11.4.0.106": 13}
TRIED = """
import json, os, sys
from catro_deploy.errors import CatroError
from catro_deploy.runtimes import cuda
library = cuda._cuda()
found = {"file": library._name, "lacking": [name for name in sys.argv[1:] if not hasattr(library, name)]}
found["searched_after"] = os.environ.get("LD_LIBRARY_PATH")
try:
    cuda.try_gpu()
except CatroError as error:
    found["error"] = [type(error).__name__, error.problem, error.hint]
print(json.dumps(found))
"""
without_driver = pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="there is a driver")


def folder(*parts: str) -> str:
    path = Path(sys.prefix, *parts)
    if not path.is_dir():
        pytest.skip(f"{path} does not exist: make test installs it")
    return str(path)


def functions() -> set[str]:
    """Names of all functions that the package calls."""
    return set(re.findall(r'"(cuda[A-Z]\w+)"', Path(cuda.__file__).read_text()))


def tried(*path: str, **variables: str) -> dict:
    root = str(Path(cuda.__file__).parents[2])
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    environment |= {"PYTHONPATH": os.pathsep.join([root, *path]), **variables}
    command = [sys.executable, "-c", TRIED, *sorted(functions())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("bindings", WHEELS)
@without_driver
def test_the_library_of_tensorrts_cuda_is_loaded_and_says_that_there_is_no_driver(bindings):
    major = WHEELS[bindings]
    # Both versions of CUDA are installed; the other one comes first.
    other, own = folder("cuda", str(25 - major)), folder("cuda", str(major))
    found = tried(other, own, folder("tensorrt", bindings))
    file = Path(found["file"])
    assert file.name == f"libcudart.so.{major}"
    assert file.is_relative_to(own)  # and not from CUDA as installed on the machine
    assert {"cudaGetDeviceProperties", "cudaGraphInstantiateWithFlags", "cudaEventElapsedTime"} < functions()
    assert found["lacking"] == []
    kind, problem, hint = found["error"]
    assert kind == "RuntimeMissingError"
    assert re.fullmatch(rf"CUDA {major}\.\d+'s runtime library finds no NVIDIA driver \(CUDA error 35\)\.", problem)
    assert "driver" in hint
    assert found["searched_after"] is None


def test_what_the_user_names_comes_first(tensorrt_there):
    found = tried(folder("cuda", "13"), tensorrt_there["PYTHONPATH"], LD_LIBRARY_PATH=tensorrt_there["LD_LIBRARY_PATH"])
    assert found["file"] == f"{tensorrt_there['LD_LIBRARY_PATH']}/libcudart.so"
    assert found["searched_after"] == tensorrt_there["LD_LIBRARY_PATH"]
    assert "error" not in found  # the double's memory returns what was copied to it


def test_without_wheels_of_tensorrt_nothing_is_added(monkeypatch):
    monkeypatch.setattr(cuda_files.metadata, "distributions", lambda: iter(()))
    assert library_path("/opt/cuda/lib64") == "/opt/cuda/lib64"


def test_a_driver_for_an_older_cuda_is_named(monkeypatch):
    versions = {"cudaRuntimeGetVersion": "13.2", "cudaDriverGetVersion": "12.4"}
    monkeypatch.setattr(cuda, "_version", versions.get)
    monkeypatch.setattr(cuda, "access_problem", lambda: None)
    error = cuda.cuda_error(35, "")
    assert isinstance(error, RuntimeMissingError)
    assert "driver is for CUDA 12.4, and the runtime library for 13.2" in error.problem
    assert "pip install tensorrt-cu12" in error.hint


@pytest.fixture
def nobody():
    """Give this process the file permissions of a user who is in no group."""
    if os.geteuid() != 0:
        pytest.skip("only root can become someone else")
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(65534)
    os.seteuid(65534)
    yield
    os.seteuid(0)
    os.setegid(0)
    os.setgroups(groups)


# Debian's groups; a machine need not have them.
GROUPS = {0: "root", 44: "video", 104: "render"}


@pytest.fixture
def dev(monkeypatch):
    """Files in place of a Jetson's device nodes: for the group video, for render, and one for root only."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to groups")
    monkeypatch.setattr(cuda_files, "_group", lambda node: GROUPS[node.stat().st_gid])
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        place.chmod(0o755)
        (place / "dri").mkdir()
        for name, group in (("nvmap", 44), ("nvhost-gpu", 44), ("nvhost-as", 0), ("dri/renderD128", 104)):
            (place / name).touch()
            (place / name).chmod(0o660)
            os.chown(place / name, 0, group)
        yield place


def test_a_user_who_may_not_open_the_gpu_gets_the_groups(dev, nobody):
    problem, hint = access_problem(dev)
    assert f"{dev / 'nvhost-gpu'} (group video)" in problem
    assert "nvhost-as" not in problem
    assert hint.startswith("sudo usermod -aG render,video nobody")


@pytest.mark.parametrize("status", [35, 100, 801, 999])
def test_whatever_cuda_reports_closed_nodes_are_the_reason(dev, nobody, monkeypatch, status):
    monkeypatch.setattr(cuda, "access_problem", lambda: access_problem(dev))
    error = cuda.cuda_error(status, "cudaStreamCreate failed")
    assert isinstance(error, RuntimeMissingError)
    assert "usermod -aG render,video" in error.hint


def test_cuda_is_not_even_loaded_without_the_memory_node(dev, nobody, monkeypatch):
    """Some releases would crash: NvRmMemInitNvmap failed with Permission denied."""
    monkeypatch.setattr(cuda, "no_gpu_memory", lambda: no_gpu_memory(dev))
    monkeypatch.setattr(cuda, "access_problem", lambda: access_problem(dev))
    cuda._cuda.cache_clear()
    with pytest.raises(RuntimeMissingError, match=f"{dev}/nvhost-gpu"):
        cuda._cuda()


def test_a_desktop_whose_render_node_is_closed_has_no_such_problem(dev, nobody):
    """CUDA uses /dev/nvidia0 on a desktop."""
    os.seteuid(0)
    (dev / "nvmap").unlink()
    os.seteuid(65534)
    assert access_problem(dev) is None


def test_root_and_computers_without_such_nodes_have_no_such_problem(dev, tmp_path):
    assert access_problem(dev) is None
    assert access_problem(tmp_path) is None
