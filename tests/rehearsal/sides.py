"""Far sides of a connection: for each, a program that takes the place of the device's Python."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.doubles.environment import build_libraries
from tests.rehearsal.parts import part
from tests.tiny import CHECKOUT
from tests.transports.sshd import script

__all__ = ["aarch64", "aarch64_tensorrt", "older_python", "x86_tensorrt"]

ENTER = Path(__file__).parent / "enter.sh"
TENSORRT_10 = "10.16.1.11"
JETPACK_6 = "10.3.0"
LIMIT_S = 60


def aarch64(folder: Path, *, uid: int = 0, mounts: Mapping[str, Path] | None = None, path: str = "/opt/site") -> Path:
    """Python 3.11 with numpy and ONNX Runtime of an aarch64 Debian; ``mounts`` are folders by their mount points.

    Raises:
        LookupError: it cannot be run here; the message says why.
    """
    home, planted = folder / "home", folder / "planted"
    home.mkdir(parents=True, exist_ok=True)
    planted.mkdir(exist_ok=True)
    seen = {"home/dev": home, "planted": planted, "opt/site": part("arm"), **(mounts or {})}
    variables = {
        "FAR_ROOT": str(part("userspace")),
        "FAR_QEMU": str(part("qemu") / "qemu-aarch64"),
        "FAR_MOUNTS": "\n".join(f"{there} {place}" for place, there in seen.items()),
        "FAR_UID": str(uid),
        "FAR_PYTHONPATH": path,
    }
    _require_namespaces()
    return _python(folder, variables, f"/bin/bash {shlex.quote(str(ENTER))} /usr/bin/python3")


def aarch64_tensorrt(folder: Path, *, uid: int = 0) -> Path:
    """The same with NVIDIA's TensorRT bindings for aarch64, and doubles of TensorRT's libraries and of a GPU.

    Raises:
        LookupError: it cannot be run here; the message says why.
    """
    compiler = [str(part("zig") / "ziglang" / "zig"), "cc", "-target", "aarch64-linux-gnu"]
    bindings, libraries = part("arm-tensorrt"), folder / "lib"
    build_libraries(compiler, TENSORRT_10, libraries)
    mounts = {"opt/tensorrt": bindings, "opt/lib": libraries, "opt/tests": CHECKOUT / "tests"}
    path = "/opt/tests/doubles:/opt:/opt/tensorrt:/opt/site"
    return aarch64(folder, uid=uid, mounts=mounts, path=path)


def x86_tensorrt(folder: Path) -> Path:
    """Python, numpy and TensorRT's bindings as on JetPack 6, on this processor, with the doubles.

    Raises:
        LookupError: it cannot be run here; the message says why.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LookupError("there is no C compiler")
    python, site, libraries = _interpreter("3.10"), part("jetpack6"), folder / "lib"
    build_libraries([compiler], JETPACK_6, libraries)
    path = os.pathsep.join(map(str, (CHECKOUT / "tests" / "doubles", CHECKOUT, site)))
    return _at_home(folder, python, {"PYTHONPATH": path, "LD_LIBRARY_PATH": str(libraries)})


def older_python(folder: Path) -> Path:
    """Python 3.8 with the last numpy and ONNX Runtime for it.

    Raises:
        LookupError: it cannot be run here; the message says why.
    """
    return _at_home(folder, _interpreter("3.8"), {"PYTHONPATH": str(part("python38"))})


def _at_home(folder: Path, python: str, variables: Mapping[str, str]) -> Path:
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    return _python(folder, {"HOME": str(home), **variables}, python, before=f"cd {shlex.quote(str(home))}")


def _python(folder: Path, variables: Mapping[str, str], command: str, before: str = ":") -> Path:
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return script(folder / "python", f'{before}\n{given} exec {command} "$@"')


@cache
def _interpreter(version: str) -> str:
    """A Python of ``version``, from pyenv or the path."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    ask = f"import sys; sys.exit(sys.version_info[:2] != {tuple(map(int, version.split('.')))})"
    for found in (*map(str, kept), shutil.which(f"python{version}")):
        if (
            found
            and subprocess.run([found, "-c", ask], capture_output=True, timeout=LIMIT_S, check=False).returncode == 0
        ):
            return found
    raise LookupError(f"there is no Python {version}, neither on the path nor of pyenv")


@cache
def _require_namespaces() -> None:
    """Raise LookupError unless this kernel allows user namespaces with their own binfmt_misc."""
    ask = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "mount",
        "-t",
        "binfmt_misc",
        "none",
        "/proc/sys/fs/binfmt_misc",
    ]
    try:
        subprocess.run(ask, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise LookupError(f"programs of other processors cannot be run here (Linux 6.7 or later can): {said}") from None
    if os.uname().machine != "x86_64" or sys.platform != "linux":
        raise LookupError(f"the emulator that is installed runs on x86-64 only, and this is {os.uname().machine}")
