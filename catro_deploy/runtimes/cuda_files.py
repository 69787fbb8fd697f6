"""CUDA's files on this machine: its runtime library where pip installed it, device nodes, ONNX Runtime's GPU build.

Polygraphy finds the library of CUDA 12 wheels (nvidia/cuda_runtime/lib), but not that of CUDA 13 wheels
(nvidia/cu13/lib), and accepts any version. TensorRT's wheels have their CUDA in the name: tensorrt-cu12, tensorrt-cu13.
"""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata, util
from pathlib import Path

__all__ = ["access_problem", "gpu_build_hint", "library_path", "no_gpu_memory", "wheel_folder"]

TENSORRT_WHEEL = re.compile(r"tensorrt[-_]cu(\d+)")
# Device nodes that CUDA opens on a Jetson; without the first nothing works. Other computers do not have that one.
MEMORY = "nvmap"
NODES = (MEMORY, "nvhost-*", "nvgpu/*/*", "dri/renderD*")
GROUPS = ("video", "render")
TEGRA_RELEASE = Path("/etc/nv_tegra_release")
# PyPI has no build for JetPack 6; later releases of L4T have their own indexes on this site.
JETSON_INDEX = "https://pypi.jetson-ai-lab.io"
JETPACK_6 = f"{JETSON_INDEX}/jp6/cu126"


def library_path(searched: str) -> str:
    """LD_LIBRARY_PATH: ``searched``, followed by the folder of the wheel that fits TensorRT."""
    wheel = wheel_folder()
    return os.pathsep.join(str(part) for part in (searched, wheel) if part)


def wheel_folder() -> Path | None:
    """The folder of libcudart for the CUDA version of TensorRT's wheel; None if pip has not installed both."""
    names = [str(one.metadata["Name"]) for one in metadata.distributions()]
    majors = {int(found[1]) for found in map(TENSORRT_WHEEL.match, names) if found}
    for major in sorted(majors, reverse=True):
        for package in (f"nvidia.cu{major}", "nvidia.cuda_runtime"):
            for folder in _folders(package):
                if (folder / "lib" / f"libcudart.so.{major}").is_file():
                    return folder / "lib"
    return None


def access_problem(dev: Path = Path("/dev")) -> tuple[str, str] | None:
    """Which of a Jetson's GPU device nodes this user may not open, and what to do; None if that is not the problem.

    Only nodes of the groups ``video`` and ``render`` count: others are for root, and CUDA works without them.
    """
    if not (dev / MEMORY).exists():
        return None
    closed: dict[str, Path] = {}
    for node in sorted(path for pattern in NODES for path in dev.glob(pattern)):
        group = _group(node)
        if group in GROUPS and not _may_open(node):
            closed.setdefault(group, node)
    if not closed:
        return None
    nodes = ", ".join(f"{node} (group {group})" for group, node in closed.items())
    return (
        f"This user may not open the GPU: no access to {nodes}.",
        f"sudo usermod -aG {','.join(sorted(closed))} {_user()}, then log in again (close open ssh connections, too).",
    )


def no_gpu_memory(dev: Path = Path("/dev")) -> bool:
    """Whether this user cannot use a Jetson's GPU at all: in some releases CUDA crashes on the attempt."""
    return (dev / MEMORY).exists() and not _may_open(dev / MEMORY)


def _may_open(node: Path) -> bool:
    return os.access(str(node), os.R_OK | os.W_OK, effective_ids=True)


def gpu_build_hint() -> str:
    """How to install ONNX Runtime's build for NVIDIA GPUs on this machine."""
    both = _known_to_pip("onnxruntime") and _known_to_pip("onnxruntime-gpu")
    command = f"python3 -m pip install {'--force-reinstall --no-deps ' if both else ''}onnxruntime-gpu"
    if both:
        install = "onnxruntime and onnxruntime-gpu write the same files, and onnxruntime was installed last. Install"
    else:
        install = "Install"
    try:
        release = re.search(r"# R(\d+)", TEGRA_RELEASE.read_text(encoding="utf-8"))
    except OSError:
        arm = platform.machine() == "aarch64"
        return f"{install} the build for NVIDIA GPUs: {command}" + (f", or see {JETSON_INDEX}" if arm else "")
    if release and release[1] == "36":
        return f"{install} NVIDIA's build for JetPack 6 (PyPI has none): {command} --index-url {JETPACK_6}"
    return f"{install} NVIDIA's build for this JetPack, from its folder at {JETSON_INDEX}: {command} --index-url FOLDER"


def _known_to_pip(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _folders(package: str) -> list[Path]:
    try:
        spec = util.find_spec(package)
    except ImportError:
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def _group(node: Path) -> str:
    import grp

    try:
        return grp.getgrgid(node.stat().st_gid).gr_name
    except (OSError, KeyError):
        return ""


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user without an entry
        return "USER"
