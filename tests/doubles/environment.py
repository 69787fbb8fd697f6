"""The environment in which ``import tensorrt`` finds the double, and the CUDA runtime is the one without a GPU."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

__all__ = ["VERSIONS", "build_libraries", "tensorrt_environment"]

VERSIONS = ("10.3.0", "10.16.1.11", "11.4.0.106")
"""Versions of the real bindings: JetPack 6.1's, the last of TensorRT 10, and the newest."""

SOURCES = Path(__file__).parent
LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")


def tensorrt_environment(version: str, folder: Path) -> dict[str, str]:
    """Environment variables for processes that use the double of ``version``; ``folder`` is for its libraries.

    Skips the test where the bindings or a C compiler are missing; make test installs both.
    """
    bindings = Path(sys.prefix) / "tensorrt" / version
    if not bindings.is_dir():
        pytest.skip(f"TensorRT's bindings {version} are not in {bindings}: make test installs them")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    build_libraries([compiler], version, folder)
    # The repository's root is for the imports of the double itself.
    path = [SOURCES, SOURCES.parents[1], bindings]
    return {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": os.pathsep.join(map(str, path))}


def build_libraries(compiler: Sequence[str], version: str, folder: Path) -> None:
    """Compile stand-ins for the libraries of TensorRT ``version`` and CUDA that are not in ``folder`` yet."""
    major = version.partition(".")[0]
    folder.mkdir(parents=True, exist_ok=True)
    sonames = {f"lib{name}.so.{major}": "nvinfer.c" for name in LIBRARIES} | {"libcudart.so": "cudart.c"}
    for soname, source in sonames.items():
        if not (folder / soname).exists():
            options = ("-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", str(folder / soname), str(SOURCES / source))
            subprocess.run([*compiler, *options], check=True)
