"""What the rehearsals need from Debian's and PyPI's registries, kept in the virtual environment.

``python -m tests.rehearsal.parts`` installs what is missing. A part that cannot be installed is named, but is not an
error: the rehearsals that need it are skipped.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.rehearsal.debian import install_qemu, install_userspace

__all__ = ["PARTS", "part"]

HOME = Path(sys.prefix) / "rehearsal"
LIMIT_S = 600
GLIBC = ("2_35", "2_28", "2_27", "2_17")


@dataclass(frozen=True)
class Part:
    """A folder that ``install`` fills; ``spec`` describes its content: if it changes, the folder is made again."""

    name: str
    spec: str
    install: Callable[[Path], None]

    @property
    def folder(self) -> Path:
        return HOME / f"{self.name}-{hashlib.sha256(self.spec.encode()).hexdigest()[:8]}"

    @property
    def reason(self) -> Path:
        """The file that says why this part could not be installed."""
        return HOME / f"{self.name}.missing"

    def provide(self) -> None:
        """Install the part unless it exists: in a temporary folder, which is renamed when it is complete."""
        if self.folder.is_dir():
            return
        HOME.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=HOME) as temporary:
            made = Path(temporary) / "part"
            made.mkdir()
            self.install(made)
            for old in HOME.glob(f"{self.name}-????????"):
                shutil.rmtree(old)
            made.rename(self.folder)


def wheels(name: str, python: str, machine: str, *requirements: str) -> Part:
    """Wheels for another Python or processor, without their dependencies: exactly these versions are installed."""

    def install(folder: Path) -> None:
        platforms = [f"--platform=manylinux_{glibc}_{machine}" for glibc in GLIBC]
        with tempfile.TemporaryDirectory() as downloads:
            subprocess.run(
                [
                    sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary=:all:", "--implementation=cp", f"--python-version={python}", f"--dest={downloads}",
                    *platforms, f"--platform=manylinux2014_{machine}", *requirements,
                ],
                check=True, capture_output=True, text=True, timeout=LIMIT_S,
            )  # fmt: skip
            for wheel in Path(downloads).glob("*.whl"):
                _unpack(wheel, folder)

    return Part(name, " ".join([python, machine, *requirements]), install)


def _unpack(wheel: Path, folder: Path) -> None:
    """Do what pip does with a wheel that fits this Python; the compiler in one of them must stay executable."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = Path(archive.extract(member, folder))
            if not member.is_dir():
                path.chmod(0o644 | member.external_attr >> 16 & 0o111)


# onnx is for the doubles of TensorRT, which compute with ONNX Runtime.
PARTS = {
    part.name: part
    for part in (
        Part("userspace", "bookworm arm64 2", install_userspace),
        Part("qemu", "trixie amd64 1", install_qemu),
        wheels("arm", "3.11", "aarch64", "numpy==2.4.6", "onnxruntime==1.32.0"),
        wheels(
            "arm-tensorrt", "3.11", "aarch64",
            "tensorrt-cu13-bindings==10.16.1.11", "onnx==1.19.1", "protobuf==6.33.0", "ml-dtypes==0.5.3",
            "typing-extensions==4.15.0",
        ),
        wheels("zig", f"3.{sys.version_info.minor}", "x86_64", "ziglang==0.15.1"),
        wheels(
            "jetpack6", "3.10", "x86_64",
            "numpy==1.21.5", "onnxruntime==1.23.2", "tensorrt-cu12-bindings==10.3.0", "onnx==1.16.2",
            "protobuf==5.29.5",
        ),
        wheels("python38", "3.8", "x86_64", "numpy==1.24.4", "onnxruntime==1.19.2"),
    )
}  # fmt: skip
"""All parts by name."""


def part(name: str) -> Path:
    """The folder of an installed part.

    Raises:
        LookupError: it is not installed; the message says why.
    """
    wanted = PARTS[name]
    if wanted.folder.is_dir():
        return wanted.folder
    why = wanted.reason.read_text() if wanted.reason.is_file() else "make rehearsal installs it"
    raise LookupError(f"{name} is not installed: {why}")


def main() -> None:
    """Install all parts, and report those that could not be installed."""
    for wanted in PARTS.values():
        try:
            wanted.provide()
        except subprocess.CalledProcessError as error:
            why = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
        else:
            wanted.reason.unlink(missing_ok=True)
            continue
        wanted.reason.write_text(why)
        sys.stdout.write(f"Rehearsals without {wanted.name}: {why}\n")


if __name__ == "__main__":
    main()
