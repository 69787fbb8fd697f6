"""Debian's packages for another processor, unpacked into a folder: the host's own packages are not touched."""

import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["MOUNT_POINTS", "install_qemu", "install_userspace"]

PACKAGES = (
    "python3", "python3-minimal", "libstdc++6", "libgomp1", "bash", "dash", "coreutils", "procps", "base-files",
)  # fmt: skip
MOUNT_POINTS = ("proc", "sys", "dev", "tmp", "planted", "home/dev", "opt/site", "opt/tensorrt", "opt/lib", "opt/tests")
"""Folders of the user space over which sides.py mounts others."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEFAULT_MIRROR = "http://deb.debian.org/debian"
LIMIT_S = 600


def install_userspace(folder: Path) -> None:
    """Install an arm64 Debian 12 with its Python 3.11."""
    with tempfile.TemporaryDirectory() as state:
        _apt(Path(state), "bookworm", "arm64", "update")
        _apt(Path(state), "bookworm", "arm64", "-y", "--download-only", "install", *PACKAGES)
        for package in Path(state).glob("cache/archives/*.deb"):
            _run("dpkg", "-x", str(package), str(folder))
    for name in MOUNT_POINTS:
        (folder / name).mkdir(parents=True, exist_ok=True)


def install_qemu(folder: Path) -> None:
    """Install the emulator of Debian 13: that of Debian 12, qemu 7.2, crashes when ONNX Runtime is imported."""
    with tempfile.TemporaryDirectory() as state:
        _apt(Path(state), "trixie", "amd64", "update")
        _apt(Path(state), "trixie", "amd64", "-y", "--download-only", "install", "qemu-user")
        (package,) = Path(state).glob("cache/archives/qemu-user_*.deb")
        _run("dpkg", "-x", str(package), f"{state}/qemu")
        shutil.copy2(f"{state}/qemu/usr/bin/qemu-aarch64", folder)


def _apt(state: Path, suite: str, architecture: str, *arguments: str) -> None:
    """Call apt-get with a separate state, in which nothing is installed."""
    for name in ("lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    (state / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {suite} main\n")
    options = {
        "APT::Architecture": architecture, "APT::Architectures": architecture, "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root", "Dir::State": state, "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache", "Dir::Etc::sourcelist": state / "sources.list", "Dir::Etc::sourceparts": "-",
        "Debug::NoLocking": "true",
    }  # fmt: skip
    _run("apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items()), *arguments)


def _mirror() -> str:
    """The mirror of this computer if it runs Debian, otherwise the default one."""
    said = _run("apt-get", "indextargets", "--format=$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
    return (said.split() or [DEFAULT_MIRROR])[0]


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout
