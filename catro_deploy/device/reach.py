"""Which targets can be measured from this machine, and what to say of the others."""

from catro_deploy.errors import TargetError
from catro_deploy.runtimes import RUNTIMES
from catro_deploy.targets import Target

__all__ = ["measurable_here", "require_latency", "require_measurable"]


def measurable_here(target: Target) -> bool:
    """Whether this version can run networks on ``target``: on the CPU of this machine, by a runtime that it knows.

    ONNX Runtime is used with its CPU provider alone: its times are never those of a GPU.
    """
    return target.kind == "cpu" and target.transport == "local" and target.runtime in RUNTIMES


def require_measurable(target: Target, stage: str) -> None:
    """See to it that ``stage``, which runs networks on the device, can do so.

    Raises:
        TargetError: it cannot.
    """
    if measurable_here(target):
        return
    where = "this machine" if target.transport == "local" else f"another machine ({target.transport})"
    raise TargetError(
        f"{stage} cannot run on {target.name}: that is {target.title}, by {target.runtime} on {where}. "
        f"This version runs networks on the CPU of this machine only, by {' or '.join(RUNTIMES)}.",
        f"prune, finetune and export do work for {target.name}. Take the ONNX files of the run to the device and "
        "measure them there; or choose a target of this machine: catro-deploy run --target x86-cpu",
    )


def require_latency(target: Target) -> None:
    """See to it that latency on ``target`` can be measured from here, or else estimated.

    Raises:
        TargetError: neither.
    """
    if not measurable_here(target) and target.gpu is None:
        raise TargetError(
            f"Latency on {target.name} can neither be measured from here nor estimated: it has no [gpu] figures.",
            "Use a budget of multiply-accumulates for it, such as --budget 50%flops.",
        )
