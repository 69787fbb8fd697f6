"""On which targets networks can be run from here, and what to say of the others."""

import importlib.util
from importlib import metadata

from catro_deploy.errors import TargetError
from catro_deploy.runtimes import RUNTIMES
from catro_deploy.runtimes.cuda_files import gpu_build_hint
from catro_deploy.targets import ON_GPU, Target
from catro_deploy.transports.registry import HERE

__all__ = ["profilable", "reachable", "require_latency", "require_reachable"]


def reachable(target: Target, device: str = HERE) -> bool:
    """Whether this version can run networks on ``target``: on the ``device``, or on this machine if it is one.

    This machine can be a GPU's target if the package of its runtime is installed.
    """
    if target.runtime not in RUNTIMES or (target.kind == "cpu") == (target.runtime in ON_GPU):
        return False
    if device != HERE:
        return True
    return target.transport == "local" and (target.runtime not in ON_GPU or _is_installed(ON_GPU[target.runtime]))


def _is_installed(package: str) -> bool:
    """Whether a package can be imported, or else is known to pip: TensorRT's may be a system's without that."""
    try:
        return importlib.util.find_spec(package) is not None or bool(metadata.version(package))
    except (metadata.PackageNotFoundError, ModuleNotFoundError):
        return False


def profilable(target: Target) -> bool:
    """Whether the layers of a network can be timed on ``target`` where it is reachable.

    What runs on GPUs names its layers otherwise than the network does, or tells when they were launched only.
    """
    return target.runtime not in ON_GPU


def require_reachable(target: Target, device: str, stage: str) -> None:
    """See to it that ``stage``, which runs networks on the device, can do so.

    Raises:
        TargetError: it cannot.
    """
    if reachable(target, device):
        return
    own = (
        "Name one of your devices (--device NAME), or add it: catro-deploy device add NAME --ssh USER@HOST "
        f"--target {target.name}"
    )
    if target.transport != "local" and target.runtime in RUNTIMES:
        raise TargetError(
            f"{stage} cannot run on {target.name}: it is another machine ({target.transport}), and nothing says which.",
            f"{own}. One that cannot be reached gets a bundle: catro-deploy bundle",
        )
    if target.runtime in ON_GPU:
        package = ON_GPU[target.runtime]
        hint = f"Install it here: python3 -m pip install {package}" if package == "tensorrt" else gpu_build_hint()
        raise TargetError(
            f"{stage} cannot run on {target.name}: that is {target.title}, and this machine has no {package}.",
            f"{hint}. {own}",
        )
    raise TargetError(
        f"{stage} cannot run on {target.name}: this version has no {target.runtime} for a {target.kind}.",
        f"It runs networks by {', '.join(RUNTIMES)}; those of GPUs on GPUs only.",
    )


def require_latency(target: Target, device: str = HERE) -> None:
    """See to it that latency on ``target`` can be measured from here, or else estimated.

    Raises:
        TargetError: neither.
    """
    if not reachable(target, device) and target.gpu is None:
        raise TargetError(
            f"Latency on {target.name} can neither be measured from here nor estimated: it has no [gpu] figures.",
            "Name one of your devices (--device), or a budget of multiply-accumulates, such as --budget 50%flops.",
        )
