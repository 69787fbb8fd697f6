"""The processes that train one network together: torchrun starts them, torch.distributed connects them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from catro_deploy.errors import FaultError, UsageError

__all__ = ["ALONE", "World", "is_loss_of_a_process", "local_gpu", "parting", "require_torchrun", "the_world"]

_T = TypeVar("_T")

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
# The others wait while the first prunes, exports or measures.
LONGEST = timedelta(days=7)


@dataclass(frozen=True)
class World:
    """This process is number ``rank`` of ``size``. All must call the methods in the same order."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it is the process that writes files and reports to the user."""
        return self.rank == 0

    def share(self, value: _T) -> _T:
        """The first process's ``value``."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    def total(self, value: int) -> int:
        """The sum of the processes' ``value``."""
        if self.size == 1:
            return value
        box = torch.tensor(value)
        dist.all_reduce(box)
        return int(box)

    @torch.no_grad()
    def align_(self, network: nn.Module) -> None:
        """Copy the first process's buffers to ``network``: each process has the statistics of its own images."""
        if self.size > 1:
            for buffer in network.buffers():
                dist.broadcast(buffer, src=0)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """The mean of the processes' ``values``, element by element."""
        if self.size == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total / self.size


ALONE = World()


@cache
def the_world() -> World:
    """The world of this process; processes started by torchrun connect here, and wait for each other.

    Raises:
        UsageError: see ``require_torchrun``.
        FaultError: they cannot connect to each other.
    """
    if not dist.is_torchelastic_launched():
        return ALONE
    require_torchrun()
    if int(os.environ["WORLD_SIZE"]) == 1:
        return ALONE
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(backend, timeout=LONGEST)
    except (RuntimeError, ValueError) as error:
        raise FaultError(
            f"The processes of torchrun cannot connect to each other: {error}.", "Check torchrun's --rdzv-endpoint."
        ) from error
    here = str(Path.cwd())
    if here not in sys.path:  # for the user's code that the first process has imported from there
        sys.path.append(here)
    return World(dist.get_rank(), dist.get_world_size())


def require_torchrun() -> None:
    """Check that a process with torchrun's environment has all of it.

    Raises:
        UsageError: a part is missing.
    """
    missing = [name for name in TORCHRUN if not os.environ.get(name, "").isdecimal()]
    if missing:
        raise UsageError(
            f"TORCHELASTIC_RUN_ID is set without {', '.join(missing)}: torchrun did not start this process.",
            "Unset TORCHELASTIC_RUN_ID, or start the command with torchrun.",
        )


def local_gpu() -> int:
    """The GPU of this process: each process of a machine has its own."""
    return int(os.environ["LOCAL_RANK"]) if dist.is_torchelastic_launched() else torch.cuda.current_device()


@contextmanager
def parting(world: World) -> Iterator[None]:
    """Disconnect from the other processes if this block fails, which makes them exit, too.

    Raises:
        FaultError: one of them has exited.
    """
    try:
        yield
    except BaseException as error:
        if world.size > 1:
            dist.destroy_process_group()
        if world.size > 1 and is_loss_of_a_process(error):
            raise FaultError(
                "Another process of the training has exited.",
                "The same command continues from the last state that was saved.",
            ) from error
        raise


def is_loss_of_a_process(error: BaseException) -> bool:
    """Whether ``error`` means that another process has exited."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())
