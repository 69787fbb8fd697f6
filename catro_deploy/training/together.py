"""Several processes under torchrun: the first runs the command, the others join its trainings."""

import time

import torch.distributed as dist

from catro_deploy.progress import Silent
from catro_deploy.training.splits import TrainingJob, train_together
from catro_deploy.training.world import is_loss_of_a_process, the_world

__all__ = ["dismiss", "serve"]

# Exit code of a process if the first process has exited; that process, or torchrun, reports why.
LEFT_ALONE = 1
# Releasing a message takes microseconds, but a busy machine may delay the thread.
PAUSE_S = 0.5


def serve() -> int:
    """Take part in every training of the first process until it is done; return the exit code."""
    world = the_world()
    job: TrainingJob | None = None
    try:
        while job := world.share(job):
            train_together(job, None, Silent(), world)
        _part()
    except RuntimeError as error:
        if is_loss_of_a_process(error):
            return LEFT_ALONE
        raise
    return 0


def dismiss() -> None:
    """Let the other processes exit, unless they already have; called by the first process."""
    world = the_world()
    if not dist.is_initialized():
        return
    try:
        world.share(None)
        _part()
    except RuntimeError as error:
        if not is_loss_of_a_process(error):
            raise
    dist.destroy_process_group()


def _part() -> None:
    """Wait for the other processes, and then for gloo's threads to release the last messages.

    A thread that does so while Python shuts down aborts its process with SIGABRT. The barrier's message may use another
    thread than the previous message, and the threads cannot be joined, so there is a pause.
    """
    dist.barrier()
    time.sleep(PAUSE_S)
