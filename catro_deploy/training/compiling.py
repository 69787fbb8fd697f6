"""torch.compile, where it works."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from catro_deploy.progress import Progress
from catro_deploy.training.compute import Hardware
from catro_deploy.training.striding import suffers_channels_last
from catro_deploy.training.world import ALONE, World

__all__ = ["Forward", "compiled", "compiled_teacher", "compiler_options"]

Forward = Callable[[torch.Tensor], torch.Tensor]

TURNS = 5


def compiled(
    model: nn.Module, images: torch.Tensor, hardware: Hardware, progress: Progress, world: World = ALONE
) -> Forward:
    """The model compiled for training on batches like ``images`` (n, c, h, w), or unchanged if that is not faster.

    Compilation happens at first use, so forward and backward are run and timed here; changed buffers, such as batch
    norm's statistics, are restored. A model that cannot be compiled is returned unchanged.
    """
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()

    def step(way: Forward) -> None:
        # As in training: gradients of a CUDA graph are overwritten by its next run, so they cannot be accumulated.
        # https://github.com/pytorch/pytorch/issues/169545
        model.zero_grad(set_to_none=True)
        with hardware.autocast():
            outputs = way(images)
        outputs.float().sum().backward()  # type: ignore[no-untyped-call]

    try:
        return _faster(model, compiler_options(model, hardware, world), step, "a step", hardware, progress)
    finally:
        for name, buffer in model.named_buffers():
            buffer.data.copy_(before[name])
        model.zero_grad(set_to_none=True)


def compiled_teacher(model: nn.Module, images: torch.Tensor, hardware: Hardware, progress: Progress) -> Forward:
    """The model, in eval mode, compiled for batches like ``images``, or unchanged if that is not faster."""

    def step(way: Forward) -> None:
        with torch.no_grad(), hardware.autocast():
            way(images)

    # Without CUDA graphs: the student's graph could overwrite the memory of the teacher's outputs.
    return _faster(model, {}, step, "the teacher's part of a step", hardware, progress)


def compiler_options(
    model: nn.Module, hardware: Hardware, world: World = ALONE
) -> dict[str, str | int | bool | Callable[..., object]]:
    """Options of the compiler for training. By default it converts convolutions to channels last."""
    if hardware.device.type == "cuda":
        # Small networks are bound by kernel launches. Inductor runs without graphs where none can be captured.
        # CUDA graphs under DistributedDataParallel fail: https://github.com/pytorch/pytorch/issues/113809
        return {"triton.cudagraphs": world.size == 1}
    return {"layout_optimization": False} if suffers_channels_last(model) else {}


def _faster(
    model: nn.Module,
    options: dict[str, str | int | bool | Callable[..., object]],
    step: Callable[[Forward], None],
    what: str,
    hardware: Hardware,
    progress: Progress,
) -> Forward:
    """Return ``model`` compiled if that works and makes ``step`` faster, else ``model`` itself."""
    try:
        fast: Forward = torch.compile(model, options=options)
        step(fast)
        turns = [[_seconds(step, way, hardware) for way in (fast, model)] for _ in range(TURNS)]
    except _compiler_errors() as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        progress.note(f"torch.compile does not work here; training continues without it: {reason}")
        return model
    ratio = statistics.median(own / plain for own, plain in turns)
    if ratio >= 1:
        progress.note(f"torch.compile makes {what} {ratio:.2f} times as long here; training continues without it")
        return model
    return fast


def _compiler_errors() -> tuple[type[Exception], ...]:
    """Errors of the compiler. Others are errors of the network or of this package, and are not hidden."""
    from torch._dynamo.exc import TorchDynamoException  # importing these takes a second
    from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

    return (TorchDynamoException, CppCompileError, InvalidCxxCompiler)


def _seconds(step: Callable[[Forward], None], way: Forward, hardware: Hardware) -> float:
    on_gpu = hardware.device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize()
    began = time.perf_counter()
    step(way)
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began
