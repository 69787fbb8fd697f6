"""Which targets networks can be run on from here, and errors for the others."""

import importlib.util
from collections.abc import Sequence
from importlib import metadata

from catro_deploy.errors import TargetError, UsageError
from catro_deploy.runtimes import RUNTIMES
from catro_deploy.runtimes.cuda_files import gpu_build_hint
from catro_deploy.runtimes.ov_library import has_device
from catro_deploy.targets import BY_KIND, ON_GPU, Target
from catro_deploy.transports.registry import HERE

__all__ = ["compared_runtimes", "no_power", "profilable", "reachable", "require_latency", "require_reachable"]

# The package of each runtime that does not come with this one.
PACKAGES = {**ON_GPU, "openvino": "openvino", "openvino-gpu": "openvino", "openvino-npu": "openvino"}
# Runtimes that need more than the ONNX file.
BUILD_ENGINES = ("tensorrt", "onnxruntime-tensorrt")
AUTO = "auto"
# OpenVINO's names for devices of a kind.
INTELS = {"igpu": "GPU", "npu": "NPU"}


def reachable(target: Target, device: str = HERE) -> bool:
    """Whether this version can run networks on ``target``: on the ``device``, or on this machine if it is one.

    This machine can be one if the package of the runtime is installed and, for Intel's devices, finds one.
    """
    known = target.runtime in RUNTIMES and target.runtime in BY_KIND[target.kind]
    if target.transport == "none" or not known:
        return False
    if device != HERE:
        return True
    package = PACKAGES.get(target.runtime)
    if target.transport != "local" or (package is not None and not _is_installed(package)):
        return False
    return target.kind not in INTELS or has_device(INTELS[target.kind])


def compared_runtimes(target: Target, asked: Sequence[str]) -> tuple[str, ...]:
    """The runtimes to compare on ``target``, its own first; ``auto``: all that run ONNX files directly on its kind.

    Raises:
        UsageError: one of ``asked`` does not.
    """
    possible = [name for name in BY_KIND[target.kind] if name in RUNTIMES and name not in BUILD_ENGINES]
    wanted = possible if AUTO in asked else asked
    if unknown := [name for name in wanted if name not in possible]:
        raise UsageError(
            f"On {target.name} networks cannot be compared in {unknown[0]}: it runs no ONNX files on a {target.kind}.",
            f"Known runtimes: {', '.join(possible) or 'none'}. All that are installed: --runtimes auto",
        )
    own = [target.runtime] if target.runtime in possible else []
    return tuple(dict.fromkeys((*own, *wanted)))


def _is_installed(package: str) -> bool:
    """Whether a package can be imported, or else is known to pip, which a system-wide TensorRT may not be."""
    try:
        return importlib.util.find_spec(package) is not None or bool(metadata.version(package))
    except (metadata.PackageNotFoundError, ModuleNotFoundError):
        return False


def profilable(target: Target) -> bool:
    """Whether the layers of a network can be timed on ``target`` where it is reachable.

    Runtimes for NVIDIA's GPUs rename layers, or report only their launch times; OpenVINO's counters have only been
    tested on CPUs.
    """
    return target.kind == "cpu"


def no_power(target: str) -> TargetError:
    """The error for a budget of energy on a device that does not report its power."""
    return TargetError(
        f"Energy cannot be measured on {target}: the device does not report power.",
        "Remove --max-energy. Power is read from a Jetson's sensors, or from nvidia-smi for networks on a GPU.",
    )


def require_reachable(target: Target, device: str, stage: str) -> None:
    """Check that ``stage``, which runs networks on the device, can do so.

    Raises:
        TargetError: it cannot.
    """
    if reachable(target, device):
        return
    if target.transport == "none":
        raise TargetError(
            f"{stage} cannot run on {target.name}: for {target.title} there are estimates only.",
            f"The reason: catro-deploy targets show {target.name}",
        )
    own = (
        "Name one of your devices (--device NAME), or add it: catro-deploy device add NAME --ssh USER@HOST "
        f"--target {target.name}"
    )
    if target.transport != "local" and target.runtime in RUNTIMES:
        raise TargetError(
            f"{stage} cannot run on {target.name}: it is another machine ({target.transport}), and no device is named.",
            f"{own}. For a device that cannot be reached, make a bundle: catro-deploy bundle",
        )
    if package := PACKAGES.get(target.runtime):
        lacking = INTELS.get(target.kind, package) if _is_installed(package) else package
        by_pip = f"Install it here: python3 -m pip install {package}"
        hint = gpu_build_hint() if package == "onnxruntime-gpu" else by_pip
        raise TargetError(
            f"{stage} cannot run on {target.name}: that is {target.title}, and this machine has no {lacking}.",
            f"{hint}. {own}" if lacking == package else own,
        )
    raise TargetError(
        f"{stage} cannot run on {target.name}: this version has no {target.runtime} for a {target.kind}.",
        f"It runs networks in {', '.join(RUNTIMES)}.",
    )


def require_latency(target: Target, device: str = HERE) -> None:
    """Check that latency on ``target`` can be measured from here, or else estimated.

    Raises:
        TargetError: neither is possible.
    """
    if target.gpu is None and reachable(target, device) and not profilable(target):
        raise TargetError(
            f"Layers on {target.name} can neither be timed nor estimated: latency budgets need one or the other.",
            "Name a budget of multiply-accumulates, such as --budget 50%flops; verify and bench measure the result.",
        )
    if not reachable(target, device) and target.gpu is None:
        raise TargetError(
            f"Latency on {target.name} can neither be measured from here nor estimated: it has no [gpu] figures.",
            "Name one of your devices (--device), or a budget of multiply-accumulates, such as --budget 50%flops.",
        )
