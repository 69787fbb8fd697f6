"""On which targets networks can be run from here, and what to say of the others."""

from catro_deploy.devices import HERE
from catro_deploy.errors import TargetError
from catro_deploy.runtimes import RUNTIMES
from catro_deploy.targets import Target

__all__ = ["reachable", "require_latency", "require_reachable"]


def reachable(target: Target, device: str = HERE) -> bool:
    """Whether this version can run networks on ``target``: on a CPU, of this machine or of the ``device``.

    ONNX Runtime is used with its CPU provider alone: its times are never those of a GPU.
    """
    return target.kind == "cpu" and target.runtime in RUNTIMES and (device != HERE or target.transport == "local")


def require_reachable(target: Target, device: str, stage: str) -> None:
    """See to it that ``stage``, which runs networks on the device, can do so.

    Raises:
        TargetError: it cannot.
    """
    if reachable(target, device):
        return
    if target.kind == "cpu" and target.runtime in RUNTIMES:
        raise TargetError(
            f"{stage} cannot run on {target.name}: it is another machine ({target.transport}), and nothing says which.",
            "Name one of your devices (--device NAME), or add it: catro-deploy device add NAME --ssh USER@HOST "
            f"--target {target.name}",
        )
    where = "this machine" if target.transport == "local" and device == HERE else "another machine"
    raise TargetError(
        f"{stage} cannot run on {target.name}: that is {target.title}, by {target.runtime} on {where}. "
        f"This version runs networks on CPUs only, by {' or '.join(RUNTIMES)}.",
        f"prune, finetune and export do work for {target.name}. Take the ONNX files of the run to the device and "
        "measure them there; or choose a target of this machine: catro-deploy run --target x86-cpu",
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
